/* A driver-level double: the part of libnvidia-ml.so.1 that the agent calls, answering from a node state file.
 *
 * The file (VRAMSCOPE_NVML_STATE, format: collectors/simulated/state.py) is read again whenever it changes. Two more
 * lines are known here:
 *     grow INDEX N        the next N fetches of a process list of that device find that it has outgrown its buffer
 *     lost INDEX          the device fell off the bus: who saw it gone does not see it again without a new start
 * What it keeps of a real driver: struct layouts, the v2 version word, v1 used = reserved + allocated, two-step lists,
 * handles that stay with their device when the order changes, GPU_IS_LOST once that device is gone.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, DRIVER_NOT_LOADED = 9,
    FUNCTION_NOT_FOUND = 13, GPU_IS_LOST = 15
};
#define MEMORY_V2 0x02000028u
#define NOT_AVAILABLE (~0ull)
#define NO_INSTANCE (~0u)
#define ANY (-1)
#define MAX_DEVICES 64
#define MAX_PROCESSES 8192
#define MAX_RULES 256

typedef unsigned long long u64;
typedef struct { u64 total, free, used; } Memory;
typedef struct { unsigned version; u64 total, reserved, free, used; } MemoryV2;
typedef struct { unsigned pid; u64 used; unsigned gpu_instance, compute_instance; } ProcessInfo;
typedef struct {
    char legacy_bus_id[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
} PciInfo;
_Static_assert(sizeof(MemoryV2) == 40 && sizeof(ProcessInfo) == 24 && sizeof(PciInfo) == 68, "layouts of nvml.h");

typedef struct { int index; char uuid[96], bus_id[32], name[96]; u64 total, reserved, allocated; } Device;
typedef struct { int index; unsigned pid; u64 used; char kinds[8]; } Process;
typedef struct { char word[8], call[16]; int index, value; } Rule;
typedef struct { char uuid[96]; int lost; } Handle;

static struct {
    char driver[80];
    Device devices[MAX_DEVICES];
    Process processes[MAX_PROCESSES];
    Rule rules[MAX_RULES];
    int device_count, process_count, rule_count, present;
} state;
static struct stat stamp;
static Handle handles[MAX_DEVICES];
static int started;

/* ---- devices and their handles ---- */

static Device *device_with(const char *uuid) {
    for (Device *device = state.devices; device < state.devices + state.device_count; device++)
        if (!strcmp(device->uuid, uuid)) return device;
    return NULL;
}

static Handle *handle_of(const Device *device) {
    Handle *handle = handles;
    while (handle < handles + MAX_DEVICES - 1 && handle->uuid[0] && strcmp(handle->uuid, device->uuid)) handle++;
    strcpy(handle->uuid, device->uuid);
    return handle;
}

static Device *device_at(int index) {
    for (Device *device = state.devices; device < state.devices + state.device_count; device++)
        if (device->index == index) return device;
    return NULL;
}

/* ---- the state file ---- */

static int target(const char *text) { return strcmp(text, "*") ? atoi(text) : ANY; }

static void parse(const char *line) {
    Device device;
    Process process;
    Rule rule = {0};
    char text[32], word[16];
    int index;
    if (sscanf(line, "driver %79[^\n]", state.driver) == 1) return;
    if (sscanf(line, "lost %d", &index) == 1 && device_at(index)) handle_of(device_at(index))->lost = 1;
    if (sscanf(line, "device %d %95s %31s %llu %llu %llu %95[^\n]", &device.index, device.uuid, device.bus_id,
               &device.total, &device.reserved, &device.allocated, device.name) == 7) {
        if (state.device_count < MAX_DEVICES) state.devices[state.device_count++] = device;
    } else if (sscanf(line, "process %d %u %31s %7s", &process.index, &process.pid, text, process.kinds) == 4) {
        process.used = strcmp(text, "unknown") ? strtoull(text, NULL, 10) : NOT_AVAILABLE;
        if (state.process_count < MAX_PROCESSES) state.processes[state.process_count++] = process;
    } else if (sscanf(line, "%15s", word) == 1 && state.rule_count < MAX_RULES) {
        int fault = sscanf(line, "fault %15s %31s %d", rule.call, text, &rule.value) == 3;
        int hang = !fault && sscanf(line, "hang %15s %31s", rule.call, text) == 2;
        int delay = !fault && !hang && sscanf(line, "delay %15s %d", rule.call, &rule.value) == 2;
        int grow = !fault && !hang && !delay && sscanf(line, "grow %31s %d", text, &rule.value) == 2;
        if (!fault && !hang && !delay && !grow) return;
        rule.index = delay ? ANY : target(text);
        memcpy(rule.word, word, sizeof rule.word - 1);
        state.rules[state.rule_count++] = rule;
    }
}

static void refresh(void) {
    const char *path = getenv("VRAMSCOPE_NVML_STATE");
    struct stat now;
    if (!path || stat(path, &now)) {
        state.present = 0;
        return;
    }
    if (state.present && now.st_ino == stamp.st_ino && now.st_size == stamp.st_size
        && now.st_mtim.tv_sec == stamp.st_mtim.tv_sec && now.st_mtim.tv_nsec == stamp.st_mtim.tv_nsec) return;
    FILE *file = fopen(path, "r");
    char line[512];
    memset(&state, 0, sizeof state);
    if (!file) return;
    while (fgets(line, sizeof line, file)) parse(line);
    fclose(file);
    stamp = now;
    state.present = 1;
}

static Rule *rule_for(const char *word, const char *call, int index) {
    for (Rule *rule = state.rules; rule < state.rules + state.rule_count; rule++)
        if (!strcmp(rule->word, word) && !strcmp(rule->call, call) && (rule->index == ANY || rule->index == index))
            return rule;
    return NULL;
}

/* What happens before a call answers: its delay, its hang, its fault. */
static int enter(const char *call, int index) {
    if (!started && strcmp(call, "init")) return UNINITIALIZED;
    refresh();
    Rule *delay = rule_for("delay", call, ANY), *fault;
    if (delay) usleep(delay->value);
    while (rule_for("hang", call, index)) {
        usleep(20000);
        refresh();
    }
    if (!state.present) return DRIVER_NOT_LOADED;
    return (fault = rule_for("fault", call, index)) ? fault->value : SUCCESS;
}

static int enter_device(const char *call, const Handle *handle, Device **device) {
    if (handle < handles || handle >= handles + MAX_DEVICES || !handle->uuid[0]) return INVALID_ARGUMENT;
    if (!started) return UNINITIALIZED;
    refresh();
    if (handle->lost || !(*device = device_with(handle->uuid))) return GPU_IS_LOST;
    int result = enter(call, (*device)->index);
    return (*device = device_with(handle->uuid)) || result ? result : GPU_IS_LOST;
}

static int text(char *to, unsigned size, const char *from) {
    if (strlen(from) >= size) return INSUFFICIENT_SIZE;
    strcpy(to, from);
    return SUCCESS;
}

/* ---- library and system ---- */

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    int result = enter("init", ANY);
    if (result == SUCCESS) started++;
#ifdef TALKATIVE
    printf("a library that prints\n");
    fflush(stdout);
#endif
    return result;
}

int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

int nvmlShutdown(void) {
    if (!started) return UNINITIALIZED;
    started--;
    return SUCCESS;
}

const char *nvmlErrorString(int code) {
    static char words[32];
    snprintf(words, sizeof words, "Error %d of the double", code);
    return words;
}

int nvmlSystemGetDriverVersion(char *version, unsigned size) {
    if (!started) return UNINITIALIZED;
    refresh();
    return text(version, size, state.driver);
}

int nvmlSystemGetNVMLVersion(char *version, unsigned size) { return text(version, size, "13.0.0"); }

int nvmlDeviceGetCount_v2(unsigned *count) {
    int result = enter("count", ANY);
    if (result == SUCCESS) *count = state.device_count;
    return result;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, Handle **handle) {
    int result = enter("handle", index);
    if (result) return result;
    Device *device = device_at(index);
    if (!device) return INVALID_ARGUMENT;
    *handle = handle_of(device);
    return SUCCESS;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, Handle **handle) {
    if (!started) return UNINITIALIZED;
    refresh();
    Device *device = device_with(uuid);
    int result = enter("handle", device ? device->index : ANY);
    if (result) return result;
    if (!(device = device_with(uuid))) return NOT_FOUND;
    *handle = handle_of(device);
    return SUCCESS;
}

/* ---- one device ---- */

int nvmlDeviceGetName(Handle *handle, char *name, unsigned size) {
    Device *device;
    int result = enter_device("identity", handle, &device);
    return result ? result : text(name, size, device->name);
}

int nvmlDeviceGetUUID(Handle *handle, char *uuid, unsigned size) {
    Device *device;
    int result = enter_device("identity", handle, &device);
    return result ? result : text(uuid, size, device->uuid);
}

int nvmlDeviceGetIndex(Handle *handle, unsigned *index) {
    Device *device;
    int result = enter_device("identity", handle, &device);
    if (result == SUCCESS) *index = device->index;
    return result;
}

int nvmlDeviceGetPciInfo_v3(Handle *handle, PciInfo *info) {
    Device *device;
    int result = enter_device("identity", handle, &device);
    if (result) return result;
    memset(info, 0, sizeof *info);
    sscanf(device->bus_id, "%x:%x:%x", &info->domain, &info->bus, &info->device);
    snprintf(info->legacy_bus_id, sizeof info->legacy_bus_id, "%04x:%02x:%02x.0", info->domain & 0xffffu,
             info->bus & 0xffu, info->device & 0xffu);
    return text(info->bus_id, sizeof info->bus_id, device->bus_id);
}

int nvmlDeviceGetMemoryInfo(Handle *handle, Memory *memory) {
    Device *device;
    int result = enter_device("memory", handle, &device);
    if (result) return result;
    memory->total = device->total;
    memory->used = device->reserved + device->allocated;
    memory->free = device->total - memory->used;
    return SUCCESS;
}

#ifndef WITHOUT_MEMORY_V2
int nvmlDeviceGetMemoryInfo_v2(Handle *handle, MemoryV2 *memory) {
    Device *device;
    if (memory->version != MEMORY_V2) return FUNCTION_NOT_FOUND;
    int result = enter_device("memory_v2", handle, &device);
    if (result) return result;
    memory->total = device->total;
    memory->reserved = device->reserved;
    memory->used = device->allocated;
    memory->free = device->total - device->reserved - device->allocated;
    return SUCCESS;
}
#endif

static int process_list(char kind, Handle *handle, unsigned *count, ProcessInfo *infos) {
    Device *device;
    int result = enter_device("processes", handle, &device);
    if (result) return result;
    unsigned room = infos ? *count : 0, listed = 0;
    for (const Process *process = state.processes; process < state.processes + state.process_count; process++) {
        if (process->index != device->index || !strchr(process->kinds, kind)) continue;
        if (listed < room) infos[listed] = (ProcessInfo){process->pid, process->used, NO_INSTANCE, NO_INSTANCE};
        listed++;
    }
    Rule *grow = infos ? rule_for("grow", "", device->index) : NULL;
    int outgrown = grow && grow->value > 0 && grow->value--;
    *count = listed;
    return listed > room || outgrown ? INSUFFICIENT_SIZE : SUCCESS;
}

int nvmlDeviceGetComputeRunningProcesses_v3(Handle *handle, unsigned *count, ProcessInfo *infos) {
    return process_list('C', handle, count, infos);
}

#ifndef WITHOUT_GRAPHICS
int nvmlDeviceGetGraphicsRunningProcesses_v3(Handle *handle, unsigned *count, ProcessInfo *infos) {
    return process_list('G', handle, count, infos);
}
#endif

#ifndef WITHOUT_MPS
int nvmlDeviceGetMPSComputeRunningProcesses_v3(Handle *handle, unsigned *count, ProcessInfo *infos) {
    return process_list('M', handle, count, infos);
}
#endif
