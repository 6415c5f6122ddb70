/* A driver-level double: the part of libnvidia-ml.so.1 that the agent calls, answering from a node state file.
 *
 * The file (VRAMSCOPE_NVML_STATE, format: collectors/simulated/state.py) is read again whenever it changes. A few more
 * lines are known here:
 *     grow INDEX N        the next N fetches of a process list of that device find that it has outgrown its buffer
 *     lost INDEX          the device fell off the bus: who saw it gone does not see it again without a new start
 *     name INDEX HEX...   the device's name as bytes, which need not be text
 *     module N            the kernel module is of version N: a library built with another LIBRARY_VERSION can't use it
 * What it keeps of a real driver: struct layouts, the v2 version word, v1 used = reserved + allocated, two-step lists,
 * handles that stay with their device when the order changes, GPU_IS_LOST once that device is gone, sparse MIG slots,
 * a return code for each field value, an event wait that may run in a thread of its own.
 */
#include <libgen.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7,
    DRIVER_NOT_LOADED = 9, TIMEOUT = 10, FUNCTION_NOT_FOUND = 13, GPU_IS_LOST = 15, LIB_RM_VERSION_MISMATCH = 18,
    ARGUMENT_VERSION_MISMATCH = 25
};
#define MEMORY_V2 0x02000028u
#define NOT_AVAILABLE (~0ull)
#define NO_INSTANCE (~0u)
#define ANY (-1)
#define WHOLE (-1)
#define XID_EVENT 8ull
#define ADDRESSING_V1 0x01000008u
#define MAX_DEVICES 64
#define MIG_SLOTS 16
#ifndef LIBRARY_VERSION
#define LIBRARY_VERSION 1
#endif
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

typedef struct { unsigned field, scope; long long time, latency; int type, result; u64 value; } FieldValue;
typedef struct { unsigned version, mode; } Addressing;
typedef struct { u64 total, free, used; } Bar1;
_Static_assert(sizeof(FieldValue) == 40 && sizeof(Addressing) == 8, "layouts of nvml.h");

typedef struct { /* a GPU, or a compute instance of one in MIG mode */
    int index, gpu_instance, compute_instance;
    char uuid[96], bus_id[32], name[96];
    u64 total, reserved, allocated;
} Device;
typedef struct { int index, gpu_instance, compute_instance; unsigned pid; u64 used; char kinds[8]; } Process;
typedef struct { char word[8], call[16]; int index, value; } Rule;
typedef struct { char word[8]; int index, values[2]; } Fact;
typedef struct { char uuid[96]; int lost; } Handle;
typedef struct { Handle *device; u64 type, data; unsigned gpu_instance, compute_instance; } EventData;
typedef struct { int index, delivered, changes; Handle *handle; } EventSet;

static struct {
    char driver[80];
    Device devices[MAX_DEVICES];
    Process processes[MAX_PROCESSES];
    Rule rules[MAX_RULES];
    Fact facts[MAX_DEVICES];
    int device_count, gpu_count, process_count, rule_count, fact_count, module, present;
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
        if (device->index == index && device->gpu_instance == WHOLE) return device;
    return NULL;
}

static int is_lost(const Handle *handle, const Device *device) {
    const Device *gpu = device ? device_at(device->index) : NULL;
    return handle->lost || !gpu || handle_of(gpu)->lost;
}

/* ---- the state file ---- */

static int target(const char *text) { return strcmp(text, "*") ? atoi(text) : ANY; }

static void rename_device(Device *device, const char *hex) {
    unsigned byte, length = 0;
    while (device && length < sizeof device->name - 1 && sscanf(hex + 2 * length, "%2x", &byte) == 1)
        device->name[length++] = (char)byte;
    if (device) device->name[length] = 0;
}

static int parse_device(const char *line) {
    Device device = {.gpu_instance = WHOLE, .compute_instance = WHOLE};
    if (sscanf(line, "device %d %95s %31s %llu %llu %llu %95[^\n]", &device.index, device.uuid, device.bus_id,
               &device.total, &device.reserved, &device.allocated, device.name) == 7) state.gpu_count++;
    else if (sscanf(line, "mig %d %d %d %95s %llu %llu %95[^\n]", &device.index, &device.gpu_instance,
                    &device.compute_instance, device.uuid, &device.total, &device.allocated, device.name) != 7) return 0;
    if (state.device_count < MAX_DEVICES) state.devices[state.device_count++] = device;
    return 1;
}

static int parse_process(const char *line) {
    Process process = {.gpu_instance = WHOLE, .compute_instance = 0};
    char place[32], used[32];
    if (sscanf(line, "process %31s %u %31s %7s", place, &process.pid, used, process.kinds) != 4) return 0;
    sscanf(place, "%d:%d:%d", &process.index, &process.gpu_instance, &process.compute_instance);
    process.used = strcmp(used, "unknown") ? strtoull(used, NULL, 10) : NOT_AVAILABLE;
    if (state.process_count < MAX_PROCESSES) state.processes[state.process_count++] = process;
    return 1;
}

static int parse_fact(const char *line) {
    static const char *words[] = {"numa", "ecc", "remap", "mig_mode"};
    char word[16];
    Fact fact = {0};
    if (sscanf(line, "%15s %d %d %d", word, &fact.index, &fact.values[0], &fact.values[1]) < 2) return 0;
    for (unsigned i = 0; i < sizeof words / sizeof *words; i++)
        if (!strcmp(word, words[i]) && state.fact_count < MAX_DEVICES) {
            memcpy(fact.word, word, sizeof fact.word - 1);
            state.facts[state.fact_count++] = fact;
            return 1;
        }
    return 0;
}

static void parse(const char *line) {
    Rule rule = {0};
    char text[32], word[16], hex[200];
    int index;
    if (sscanf(line, "driver %79[^\n]", state.driver) == 1 || sscanf(line, "module %d", &state.module) == 1) return;
    if (sscanf(line, "lost %d", &index) == 1 && device_at(index)) handle_of(device_at(index))->lost = 1;
    if (sscanf(line, "name %d %199s", &index, hex) == 2) rename_device(device_at(index), hex);
    if (parse_device(line) || parse_process(line) || parse_fact(line)) return;
    if (sscanf(line, "%15s", word) == 1 && state.rule_count < MAX_RULES) {
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

static int same_file(const struct stat *one, const struct stat *other) {
    return one->st_ino == other->st_ino && one->st_size == other->st_size
        && one->st_mtim.tv_sec == other->st_mtim.tv_sec && one->st_mtim.tv_nsec == other->st_mtim.tv_nsec;
}

static void refresh(void) {
    const char *path = getenv("VRAMSCOPE_NVML_STATE");
    struct stat now;
    if (!path || stat(path, &now)) {
        state.present = 0;
        return;
    }
    if (state.present && same_file(&now, &stamp)) return;
    FILE *file = fopen(path, "r");
    char line[512];
    memset(&state, 0, sizeof state);
    if (!file) return;
    while (fgets(line, sizeof line, file)) parse(line);
    fclose(file);
    stamp = now;
    state.present = 1;
}

static const Fact *fact_of(const char *word, int index) {
    for (const Fact *fact = state.facts; fact < state.facts + state.fact_count; fact++)
        if (!strncmp(fact->word, word, sizeof fact->word - 1) && fact->index == index) return fact;
    return NULL;
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
    if (state.module && state.module != LIBRARY_VERSION) return LIB_RM_VERSION_MISMATCH;
    return (fault = rule_for("fault", call, index)) ? fault->value : SUCCESS;
}

static int enter_device(const char *call, const Handle *handle, Device **device) {
    if (handle < handles || handle >= handles + MAX_DEVICES || !handle->uuid[0]) return INVALID_ARGUMENT;
    if (!started) return UNINITIALIZED;
    refresh();
    if (!(*device = device_with(handle->uuid))) return strncmp(handle->uuid, "MIG-", 4) ? GPU_IS_LOST : INVALID_ARGUMENT;
    if (is_lost(handle, *device)) return GPU_IS_LOST;
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
    if (result == SUCCESS) *count = state.gpu_count;
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

int nvmlDeviceGetBAR1MemoryInfo(Handle *handle, Bar1 *memory) {
    Device *device;
    int result = enter_device("bar1", handle, &device);
    if (result == SUCCESS) *memory = (Bar1){131072ull << 20, 131072ull << 20, 0};
    return result;
}

/* ---- MIG ---- */

static int in_mig_mode(int index) {
    for (const Device *device = state.devices; device < state.devices + state.device_count; device++)
        if (device->index == index && device->gpu_instance != WHOLE) return 1;
    return fact_of("mig_mode", index) != NULL;
}

int nvmlDeviceGetMigMode(Handle *handle, unsigned *current, unsigned *pending) {
    Device *device;
    int result = enter_device("mig", handle, &device);
    if (result == SUCCESS && device->gpu_instance != WHOLE) return INVALID_ARGUMENT;
    if (result == SUCCESS) *current = *pending = (unsigned)in_mig_mode(device->index);
    return result;
}

int nvmlDeviceGetMaxMigDeviceCount(Handle *handle, unsigned *count) {
    Device *device;
    int result = enter_device("mig", handle, &device);
    if (result == SUCCESS) *count = MIG_SLOTS;
    return result;
}

/* Every other slot is empty, and empty slots are answered in two ways, as drivers do. */
int nvmlDeviceGetMigDeviceHandleByIndex(Handle *handle, unsigned slot, Handle **instance) {
    Device *gpu;
    int result = enter_device("slot", handle, &gpu);
    if (result) return result;
    unsigned number = 0;
    for (const Device *device = state.devices; device < state.devices + state.device_count; device++) {
        if (device->index != gpu->index || device->gpu_instance == WHOLE) continue;
        if (2 * number++ == slot) {
            *instance = handle_of(device);
            return SUCCESS;
        }
    }
    return slot % 4 == 1 ? INVALID_ARGUMENT : NOT_FOUND;
}

static int instance_id(Handle *handle, unsigned *id, int of_gpu) {
    Device *device;
    int result = enter_device("identity", handle, &device);
    if (result == SUCCESS && device->gpu_instance == WHOLE) return NOT_SUPPORTED;
    if (result == SUCCESS) *id = (unsigned)(of_gpu ? device->gpu_instance : device->compute_instance);
    return result;
}

int nvmlDeviceGetGpuInstanceId(Handle *handle, unsigned *id) { return instance_id(handle, id, 1); }

int nvmlDeviceGetComputeInstanceId(Handle *handle, unsigned *id) { return instance_id(handle, id, 0); }

/* ---- memory that the operating system uses ---- */

#ifndef WITHOUT_NUMA
int nvmlDeviceGetNumaNodeId(Handle *handle, int *node) {
    Device *device;
    int result = enter_device("numa", handle, &device);
    const Fact *fact = result == SUCCESS ? fact_of("numa", device->index) : NULL;
    if (fact) *node = fact->values[0];
    return result ? result : fact ? SUCCESS : NOT_SUPPORTED;
}

int nvmlDeviceGetAddressingMode(Handle *handle, Addressing *addressing) {
    Device *device;
    if (addressing->version != ADDRESSING_V1) return ARGUMENT_VERSION_MISMATCH;
    int result = enter_device("numa", handle, &device);
    if (result == SUCCESS) addressing->mode = fact_of("numa", device->index) ? 2 : 0;
    return result;
}
#endif

/* ---- health ---- */

static void field_value(const Device *device, FieldValue *value) {
    const Fact *ecc = fact_of("ecc", device->index), *remap = fact_of("remap", device->index);
    value->result = NOT_SUPPORTED;
    if (value->field == 4 && ecc) *value = (FieldValue){.field = 4, .type = 3, .value = (u64)ecc->values[0]};
    if ((value->field == 144 || value->field == 145) && remap)
        *value = (FieldValue){.field = value->field, .type = 1, .value = (u64)remap->values[value->field - 144]};
}

int nvmlDeviceGetFieldValues(Handle *handle, int count, FieldValue *values) {
    Device *device;
    int result = enter_device("health", handle, &device);
    for (int i = 0; result == SUCCESS && i < count; i++) field_value(device, values + i);
    return result;
}

/* The wait may run in a thread of its own, so it reads the file by itself and touches nothing that others write. */
static int events_in_file(int index, int wanted, int *xid, int *code) {
    const char *path = getenv("VRAMSCOPE_NVML_STATE");
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[512], target_text[32];
    int where, number, seen = 0;
    *code = SUCCESS;
    while (file && fgets(line, sizeof line, file)) {
        if (sscanf(line, "fault events %31s %d", target_text, &number) == 2
            && (target(target_text) == ANY || target(target_text) == index)) *code = number;
        if (sscanf(line, "xid %d %d", &where, &number) == 2 && where == index && seen++ == wanted) *xid = number;
    }
    if (file) fclose(file);
    return seen;
}

/* A descriptor that can be read when something in the file's folder was replaced. */
static int file_changes(void) {
    char folder[512];
    int changes = inotify_init1(IN_CLOEXEC);
    snprintf(folder, sizeof folder, "%s", getenv("VRAMSCOPE_NVML_STATE"));
    inotify_add_watch(changes, dirname(folder), IN_MOVED_TO | IN_CLOSE_WRITE);
    return changes;
}

int nvmlDeviceGetSupportedEventTypes(Handle *handle, u64 *types) {
    Device *device;
    int result = enter_device("events", handle, &device);
    if (result == SUCCESS) *types = XID_EVENT;
    return result;
}

int nvmlEventSetCreate(EventSet **set) {
    *set = calloc(1, sizeof **set);
    return SUCCESS;
}

int nvmlDeviceRegisterEvents(Handle *handle, u64 types, EventSet *set) {
    Device *device;
    int xid, code, result = enter_device("events", handle, &device);
    if (result == SUCCESS && types != XID_EVENT) return INVALID_ARGUMENT;
    int before = result == SUCCESS ? events_in_file(device->index, -1, &xid, &code) : 0;
    if (result == SUCCESS) *set = (EventSet){device->index, before, file_changes(), handle};
    return result;
}

int nvmlEventSetWait_v2(EventSet *set, EventData *data, unsigned milliseconds) {
    char notes[4096];
    struct pollfd changed = {.fd = set->changes, .events = POLLIN};
    do {
        int xid = 0, code, seen = events_in_file(set->index, set->delivered, &xid, &code);
        if (code) return code;
        if (seen > set->delivered) {
            set->delivered++;
            *data = (EventData){set->handle, XID_EVENT, (u64)xid, NO_INSTANCE, NO_INSTANCE};
            return SUCCESS;
        }
        set->delivered = seen;
    } while (poll(&changed, 1, milliseconds) > 0 && read(set->changes, notes, sizeof notes) > 0);
    return TIMEOUT;
}

int nvmlEventSetFree(EventSet *set) {
    close(set->changes);
    free(set);
    return SUCCESS;
}

/* ---- processes ---- */

static int process_list(char kind, Handle *handle, unsigned *count, ProcessInfo *infos) {
    Device *device;
    int result = enter_device("processes", handle, &device);
    if (result) return result;
    unsigned room = infos ? *count : 0, listed = 0;
    for (const Process *process = state.processes; process < state.processes + state.process_count; process++) {
        if (process->index != device->index || !strchr(process->kinds, kind)) continue;
        int of_instance = process->gpu_instance == device->gpu_instance
                          && process->compute_instance == device->compute_instance;
        if (device->gpu_instance != WHOLE && !of_instance) continue;
        unsigned part = process->gpu_instance == WHOLE ? NO_INSTANCE : (unsigned)process->gpu_instance;
        if (listed < room) infos[listed] = (ProcessInfo){process->pid, process->used, part, part};
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
