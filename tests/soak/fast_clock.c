/* Time in fast motion for a whole program and its children: LD_PRELOAD it, with FAST_CLOCK naming a file of struct clock.
 *
 * CLOCK_MONOTONIC and CLOCK_REALTIME run at the rate in the file, which may change at any moment, and waits end when
 * they would have ended by that clock. Waits are cut into slices, so that a new rate is noticed.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <semaphore.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

typedef long long i64;
#define BILLION 1000000000ll
#define SLICE (BILLION / 20)

/* shown = shown_base + rate * (real - real_base), nanoseconds; wall = shown + wall_offset. Odd sequence: being written. */
struct clock { volatile i64 sequence; double rate; i64 real_base, shown_base, wall_offset; };
static const struct clock *shared;

__attribute__((constructor)) static void open_clock(void) {
    const char *path = getenv("FAST_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *found = file < 0 ? MAP_FAILED : mmap(NULL, sizeof(struct clock), PROT_READ, MAP_SHARED, file, 0);
    if (found != MAP_FAILED) shared = found;
    if (file >= 0) close(file);
}

static struct clock now_shared(void) {
    struct clock copy;
    do copy = *shared;
    while (copy.sequence & 1 || copy.sequence != shared->sequence);
    return copy;
}

static i64 real_now(void) {
    struct timespec now;
    syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
    return now.tv_sec * BILLION + now.tv_nsec;
}

static i64 shown_at(const struct clock *clock, i64 real) {
    return clock->shown_base + (i64)(clock->rate * (double)(real - clock->real_base));
}

static i64 shown_now(void) {
    struct clock clock = now_shared();
    return shown_at(&clock, real_now());
}

static struct timespec as_timespec(i64 time) { return (struct timespec){time / BILLION, time % BILLION}; }

/* How long to wait really before looking again whether the shown clock has come to `until`. */
static i64 slice_until(i64 until) {
    struct clock clock = now_shared();
    i64 left = (i64)((double)(until - shown_at(&clock, real_now())) / clock.rate);
    return left < 0 ? 0 : left > SLICE ? SLICE : left;
}

int clock_gettime(clockid_t id, struct timespec *now) {
    if (!shared || (id != CLOCK_MONOTONIC && id != CLOCK_REALTIME)) return syscall(SYS_clock_gettime, id, now);
    *now = as_timespec(shown_now() + (id == CLOCK_REALTIME ? now_shared().wall_offset : 0));
    return 0;
}

int clock_nanosleep(clockid_t id, int flags, const struct timespec *wanted, struct timespec *left) {
    if (!shared || id != CLOCK_MONOTONIC) return syscall(SYS_clock_nanosleep, id, flags, wanted, left) ? errno : 0;
    i64 until = wanted->tv_sec * BILLION + wanted->tv_nsec + (flags & TIMER_ABSTIME ? 0 : shown_now());
    for (i64 slice; (slice = slice_until(until)) > 0;) {
        struct timespec nap = as_timespec(slice);
        if (syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &nap, NULL) && errno == EINTR) return EINTR;
    }
    return 0;
}

int epoll_wait(int descriptor, struct epoll_event *events, int room, int milliseconds) {
    i64 until = milliseconds < 0 || !shared ? 0 : shown_now() + milliseconds * 1000000ll;
    for (;;) {
        i64 slice = milliseconds < 0 || !shared ? milliseconds * 1000000ll : slice_until(until);
        struct timespec nap = as_timespec(slice);
        int found = syscall(SYS_epoll_pwait2, descriptor, events, room, slice < 0 ? NULL : &nap, NULL, 8);
        if (found || slice <= 0 || !shared) return found;
    }
}

/* What a Python thread waits on with a timeout: without this it would wait until the real clock comes to the shown time. */
int sem_clockwait(sem_t *semaphore, clockid_t id, const struct timespec *wanted) {
    static int (*wait)(sem_t *, clockid_t, const struct timespec *);
    if (!wait) wait = (int (*)(sem_t *, clockid_t, const struct timespec *))dlsym(RTLD_NEXT, "sem_clockwait");
    if (!shared || id != CLOCK_MONOTONIC) return wait(semaphore, id, wanted);
    i64 until = wanted->tv_sec * BILLION + wanted->tv_nsec;
    for (i64 slice;;) {
        slice = slice_until(until);
        struct timespec end = as_timespec(real_now() + slice);
        int found = wait(semaphore, CLOCK_MONOTONIC, &end);
        if (!found || errno != ETIMEDOUT || slice <= 0) return found;
    }
}
