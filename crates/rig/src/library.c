/* A stand-in for libnvidia-ml.so that does what a file beside it says.
 *
 * FILE.state, where FILE is the path this library was loaded from, holds lines of a key and a value. A key may begin
 * with the number of a GPU (`0.power_instant 312500`), or not, and then holds for all. `ret.FUNCTION 3` makes a call
 * answer 3, `lost 15` all calls on a device, `mig.lost 999` all on its instances, `hang 1` lets calls wait until the
 * line is gone; a key that is not there has the value that stands here. FILE.calls gets a line for each call: function and GPU.
 *
 * With -DOLD it has the functions of a driver of 2016 only.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef unsigned int u32;
typedef unsigned long long u64;
typedef void *device;

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, TIMEOUT = 10 };

static const char *path_of(const char *ending) {
    static __thread char path[4096];
    Dl_info info;
    dladdr((void *)path_of, &info);
    snprintf(path, sizeof path, "%s.%s", info.dli_fname, ending);
    return path;
}

/* Value of a key as text, for a GPU or for all. */
static int find(int gpu, const char *key, char *value, size_t size) {
    FILE *file = fopen(path_of("state"), "r");
    char line[512], own[256], found = 0;
    snprintf(own, sizeof own, "%d.%s", gpu, key);
    while (file && fgets(line, sizeof line, file)) {
        char *blank = strchr(line, ' ');
        if (!blank) continue;
        *blank = 0;
        blank[1 + strcspn(blank + 1, "\n")] = 0;
        int is_own = strcmp(line, own) == 0;
        if (is_own || (strcmp(line, key) == 0 && !found)) {
            snprintf(value, size, "%s", blank + 1);
            found = 1;
            if (is_own) break;
        }
    }
    if (file) fclose(file);
    return found;
}

static long long get(int gpu, const char *key, long long otherwise) {
    char value[256];
    return find(gpu, key, value, sizeof value) ? atoll(value) : otherwise;
}

static void note(const char *what, int gpu) {
    char line[128];
    int len = snprintf(line, sizeof line, "%s %d\n", what, gpu);
    int file = open(path_of("calls"), O_WRONLY | O_CREAT | O_APPEND, 0644);
    if (file >= 0) {
        if (write(file, line, len) != len) abort();
        close(file);
    }
}

/* A handle holds GPU, instance (0: none) and the generation of the layout. */
static device handle(int gpu, int instance) {
    long long generation = get(gpu, "generation", 1);
    return (device)(size_t)(0x10000 * generation + 0x100 * gpu + 0x1000000000 + instance);
}
static int gpu_of(device d) { return ((size_t)d >> 8) & 0xff; }
static int instance_of(device d) { return (size_t)d & 0xff; }

static int enter(const char *function, int gpu) {
    char key[160];
    note(function, gpu);
    snprintf(key, sizeof key, "hang.%s", function);
    while (get(gpu, "hang", 0) || get(gpu, key, 0)) usleep(1000);
    snprintf(key, sizeof key, "ret.%s", function);
    long long code = get(gpu, "lost", 0);
    return code ? code : get(gpu, key, 0);
}

static int enter_device(const char *function, device d) {
    int gpu = gpu_of(d);
    int code = enter(function, gpu);
    if (code) return code;
    if (instance_of(d) && get(gpu, "mig.lost", 0)) return get(gpu, "mig.lost", 0);
    return handle(gpu, instance_of(d)) == d ? SUCCESS : INVALID_ARGUMENT;
}

#define ENTER(d) do { int code = enter_device(__func__, d); if (code) return code; } while (0)
#define SYSTEM() do { int code = enter(__func__, -1); if (code) return code; } while (0)
#define NUMBER(function, key, otherwise) \
    int function(device d, u32 *out) { ENTER(d); *out = get(gpu_of(d), key, otherwise); return SUCCESS; }
#define NUMBER_OF(function, key, otherwise) \
    int function(device d, u32 which, u32 *out) { \
        char name[64]; ENTER(d); snprintf(name, sizeof name, "%s.%u", key, which); \
        *out = get(gpu_of(d), name, otherwise); return SUCCESS; }
#define PAIR(function, first, otherwise1, second, otherwise2) \
    int function(device d, u32 *a, u32 *b) { ENTER(d); \
        *a = get(gpu_of(d), first, otherwise1); *b = get(gpu_of(d), second, otherwise2); return SUCCESS; }

static int put(char *out, u32 size, const char *value) { snprintf(out, size, "%s", value); return SUCCESS; }

int nvmlInit_v2(void) { SYSTEM(); return SUCCESS; }
int nvmlShutdown(void) { SYSTEM(); return SUCCESS; }
int nvmlSystemGetDriverVersion(char *out, u32 size) {
    char value[80] = "580.95.05";
    SYSTEM(); find(-1, "driver", value, sizeof value); return put(out, size, value);
}
int nvmlSystemGetNVMLVersion(char *out, u32 size) { SYSTEM(); return put(out, size, "13.580.95.05"); }
int nvmlDeviceGetCount_v2(u32 *out) { SYSTEM(); *out = get(-1, "count", 2); return SUCCESS; }
int nvmlDeviceGetHandleByIndex_v2(u32 index, device *out) {
    int code = enter(__func__, index);
    *out = handle(index, 0);
    return code;
}
static void uuid_of(int gpu, int instance, char *out, u32 size) {
    if (instance) snprintf(out, size, "MIG-00000000-1111-2222-3333-0000000000%d%d", gpu, instance);
    else snprintf(out, size, "GPU-5fd4f087-86f3-7a43-b711-4771313afc5%d", gpu);
}
int nvmlDeviceGetHandleByUUID(const char *uuid, device *out) {
    int gpu = uuid[strlen(uuid) - 1] - '0';
    int code = enter(__func__, gpu);
    *out = handle(gpu, 0);
    return code;
}
int nvmlDeviceGetUUID(device d, char *out, u32 size) {
    ENTER(d); uuid_of(gpu_of(d), instance_of(d), out, size); return SUCCESS;
}
int nvmlDeviceGetName(device d, char *out, u32 size) {
    char value[96] = "NVIDIA H100 80GB HBM3";
    ENTER(d); find(gpu_of(d), "name", value, sizeof value);
    if (instance_of(d)) strcat(value, " MIG 1g.10gb");
    return put(out, size, value);
}
typedef struct { char old[16]; u32 domain, bus, device, id, subsystem; char bus_id[32]; } pci_info;
int nvmlDeviceGetPciInfo_v3(device d, pci_info *out) {
    ENTER(d);
    out->id = get(gpu_of(d), "pci_id", 0x233010de);
    snprintf(out->bus_id, sizeof out->bus_id, "00000000:%02X:00.0", 0x1b + gpu_of(d));
    return SUCCESS;
}
NUMBER(nvmlDeviceGetArchitecture, "architecture", 9)
int nvmlDeviceGetVbiosVersion(device d, char *out, u32 size) { ENTER(d); return put(out, size, "96.00.A5.00.01"); }

typedef struct { u32 gpu, memory; } rates;
int nvmlDeviceGetUtilizationRates(device d, rates *out) {
    ENTER(d);
    out->gpu = get(gpu_of(d), "utilization", 87);
    out->memory = get(gpu_of(d), "memory_utilization", 41);
    return SUCCESS;
}
typedef struct { u64 total, free, used; } memory_v1;
int nvmlDeviceGetMemoryInfo(device d, memory_v1 *out) {
    ENTER(d);
    *out = (memory_v1){ 80ull << 30, 59ull << 30, 21ull << 30 };
    return SUCCESS;
}
NUMBER_OF(nvmlDeviceGetClockInfo, "clock", 1000 + 100 * which)
NUMBER_OF(nvmlDeviceGetMaxClockInfo, "clock_max", 2000 + 100 * which)
NUMBER_OF(nvmlDeviceGetApplicationsClock, "clock_application", 1500 + 100 * which)
NUMBER_OF(nvmlDeviceGetTemperature, "temperature", 44)
NUMBER_OF(nvmlDeviceGetTemperatureThreshold, "threshold", 90 + which)
NUMBER(nvmlDeviceGetPowerUsage, "power_usage", 250750)
NUMBER(nvmlDeviceGetPowerManagementLimit, "power_limit", 650000)
NUMBER(nvmlDeviceGetEnforcedPowerLimit, "power_limit_enforced", 600000)
NUMBER(nvmlDeviceGetPowerManagementDefaultLimit, "power_limit_default", 700000)
PAIR(nvmlDeviceGetPowerManagementLimitConstraints, "power_limit_min", 200000, "power_limit_max", 700000)
NUMBER(nvmlDeviceGetPerformanceState, "performance_state", 0)
NUMBER(nvmlDeviceGetFanSpeed, "fan", 33)
NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, "pcie_gen", 5)
NUMBER(nvmlDeviceGetCurrPcieLinkWidth, "pcie_width", 16)
NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, "pcie_gen_max", 5)
NUMBER(nvmlDeviceGetMaxPcieLinkWidth, "pcie_width_max", 16)
NUMBER(nvmlDeviceGetPcieReplayCounter, "pcie_replays", 7)
NUMBER(nvmlDeviceGetPersistenceMode, "persistence", 1)
NUMBER(nvmlDeviceGetComputeMode, "compute_mode", 0)
PAIR(nvmlDeviceGetEncoderUtilization, "encoder", 11, "period", 166666)
PAIR(nvmlDeviceGetDecoderUtilization, "decoder", 12, "period", 166666)
PAIR(nvmlDeviceGetEccMode, "ecc", 1, "ecc_pending", 1)
int nvmlDeviceGetCurrentClocksThrottleReasons(device d, u64 *out) {
    ENTER(d); *out = get(gpu_of(d), "reasons", 0); return SUCCESS;
}
int nvmlDeviceGetTotalEccErrors(device d, u32 kind, u32 lifetime, u64 *out) {
    ENTER(d); *out = 10 * lifetime + kind; return SUCCESS;
}
/* Blocks as on a GPU from Ampere on: device memory (2) and SRAM (7). */
int nvmlDeviceGetMemoryErrorCounter(device d, u32 kind, u32 lifetime, u32 block, u64 *out) {
    ENTER(d);
    if (block != 2 && (block != 7 || !get(gpu_of(d), "sram", 1))) return NOT_SUPPORTED;
    *out = 100 * block + 10 * lifetime + kind;
    return SUCCESS;
}
typedef struct { u64 total, free, used; } bar1;
int nvmlDeviceGetBAR1MemoryInfo(device d, bar1 *out) {
    ENTER(d); *out = (bar1){ 128ull << 30, 127ull << 30, 1ull << 30 }; return SUCCESS;
}

#ifndef OLD
int nvmlDeviceGetTotalEnergyConsumption(device d, u64 *out) {
    ENTER(d); *out = get(gpu_of(d), "energy", 123456789); return SUCCESS;
}
typedef struct { u32 version; u64 total, reserved, free, used; } memory_v2;
int nvmlDeviceGetMemoryInfo_v2(device d, memory_v2 *out) {
    ENTER(d);
    if (out->version != (sizeof *out | 2 << 24)) return 25;
    u64 size = instance_of(d) ? 10ull << 30 : 80ull << 30;
    out->total = size; out->reserved = 1ull << 30; out->free = size - size / 4 - (1ull << 30);
    out->used = get(gpu_of(d), "memory_used", size / 4);
    return SUCCESS;
}
typedef struct { u32 version, sensor; int value; } temperature;
int nvmlDeviceGetTemperatureV(device d, temperature *out) {
    ENTER(d);
    if (out->version != (sizeof *out | 1 << 24)) return 25;
    out->value = get(gpu_of(d), "temperature", 45);
    return SUCCESS;
}
typedef struct { u32 version; int value; } margin;
int nvmlDeviceGetMarginTemperature(device d, margin *out) {
    ENTER(d); out->value = get(gpu_of(d), "margin", 42); return SUCCESS;
}
int nvmlDeviceGetCurrentClocksEventReasons(device d, u64 *out) {
    ENTER(d); *out = get(gpu_of(d), "reasons", 0); return SUCCESS;
}
PAIR(nvmlDeviceGetJpgUtilization, "jpeg", 13, "period", 166666)
PAIR(nvmlDeviceGetOfaUtilization, "ofa", 14, "period", 166666)
NUMBER(nvmlDeviceGetNumFans, "fans", 2)
NUMBER_OF(nvmlDeviceGetFanSpeed_v2, "fan", 30 + 5 * which)
typedef struct { u32 version, fan, speed; } fan_rpm;
int nvmlDeviceGetFanSpeedRPM(device d, fan_rpm *out) { ENTER(d); out->speed = 1800; return SUCCESS; }
NUMBER(nvmlDeviceGetPcieSpeed, "pcie_speed", 32000)
typedef struct { u32 banks[5]; } histogram;
int nvmlDeviceGetRowRemapperHistogram(device d, histogram *out) {
    ENTER(d); *out = (histogram){ { 640, 0, 0, 0, 0 } }; return SUCCESS;
}
typedef struct { u32 version; u64 counts[11]; u32 exceeded; } sram;
int nvmlDeviceGetSramEccErrorStatus(device d, sram *out) {
    ENTER(d);
    if (out->version != (sizeof *out | 1 << 24)) return 25;
    for (int at = 0; at < 11; at++) out->counts[at] = at + 1;
    out->exceeded = 0;
    return SUCCESS;
}
int nvmlDeviceGetEncoderStats(device d, u32 *sessions, u32 *fps, u32 *latency_us) {
    ENTER(d);
    *sessions = get(gpu_of(d), "encoder_sessions", 2);
    *fps = *sessions ? 108 : 0;
    *latency_us = *sessions ? 96754 : 0;
    return SUCCESS;
}
int nvmlDeviceGetC2cModeInfoV(device d, u32 *mode) { ENTER(d); *mode = get(gpu_of(d), "c2c", 1); return SUCCESS; }
/* `fabric_version 2` is a driver that knows no newer struct. */
typedef struct { u32 version; unsigned char cluster[16]; u32 status, clique; unsigned char state; u32 mask; unsigned char health; } fabric_v3;
int nvmlDeviceGetGpuFabricInfoV(device d, fabric_v3 *out) {
    ENTER(d);
    long long newest = get(gpu_of(d), "fabric_version", 3);
    if (out->version != (newest == 3 ? sizeof *out | 3 << 24 : 36 | 2 << 24)) return 25;
    out->state = get(gpu_of(d), "fabric", 3);
    if (newest == 3) out->health = get(gpu_of(d), "fabric_health", 1);
    return SUCCESS;
}
typedef struct { u32 environment, feature, tools; } confidential;
int nvmlSystemGetConfComputeState(confidential *out) { SYSTEM(); out->feature = 0; return SUCCESS; }
NUMBER_OF(nvmlDeviceGetNvLinkState, "link", which < 17)
/* Twelve links lead to the GPU beside it, the others to a switch. */
NUMBER_OF(nvmlDeviceGetNvLinkRemoteDeviceType, "link_end", which < 12 ? 0 : 2)
int nvmlDeviceGetNvLinkRemotePciInfo_v2(device d, u32 link, pci_info *out) {
    ENTER(d);
    (void)link;
    snprintf(out->bus_id, sizeof out->bus_id, "00000000:%02X:00.0", 0x1b + (gpu_of(d) ^ 1));
    return SUCCESS;
}
int nvmlDeviceGetMemoryAffinity(device d, u32 words, unsigned long *nodes, u32 scope) {
    ENTER(d);
    (void)scope;
    memset(nodes, 0, words * sizeof *nodes);
    long long node = get(gpu_of(d), "numa", gpu_of(d));
    if (node >= 0) nodes[node / 64] = 1ul << node % 64;
    return SUCCESS;
}

/* Field values: field.ID or field.ID.SCOPE; what is not named answers NOT_SUPPORTED, unless it stands here. */
typedef struct { u32 id, scope; long long timestamp, latency; u32 type; int code; u64 value; } field;
static const struct { u32 id; u64 value; } FIELDS[] = {
    { 186, 312500 }, { 185, 305250 }, { 82, 61 }, { 83, 987654321 }, { 190, 600000 }, { 192, 700000 }, { 187, 200000 },
    { 188, 700000 }, { 189, 700000 }, { 74, 5000000 }, { 75, 0 }, { 269, 1000 }, { 270, 2000 }, { 271, 3000 },
    { 94, 3 }, { 95, 0 }, { 173, 4 }, { 197, 1000000 }, { 198, 2000000 }, { 138, 1024 }, { 139, 2048 }, { 142, 1 },
    { 143, 2 }, { 144, 0 }, { 145, 0 }, { 91, 18 }, { 170, 10 }, { 161, 1 }, { 162, 2 }, { 163, 3 }, { 230, 0 },
};
int nvmlDeviceGetFieldValues(device d, int count, field *fields) {
    ENTER(d);
    for (int i = 0; i < count; i++) {
        char key[64], of_scope[64];
        snprintf(key, sizeof key, "field.%u", fields[i].id);
        snprintf(of_scope, sizeof of_scope, "field:%u:%u", fields[i].id, fields[i].scope);
        note(of_scope, gpu_of(d));
        long long value = -1;
        for (size_t at = 0; at < sizeof FIELDS / sizeof *FIELDS; at++)
            if (FIELDS[at].id == fields[i].id) value = FIELDS[at].value;
        if ((fields[i].id == 186 || fields[i].id == 190) && fields[i].scope == 1) value = -1;
        of_scope[5] = of_scope[5 + strcspn(of_scope + 5, ":")] = '.';
        for (char *c = of_scope; *c; c++) if (*c == ':') *c = '.';
        value = get(gpu_of(d), of_scope, get(gpu_of(d), key, value));
        if (value < 0) { fields[i].code = value == -1 ? NOT_SUPPORTED : -value; continue; }
        fields[i].type = 3;
        /* The largest number that a line can have stands for all bits set. */
        fields[i].value = value == 0x7fffffffffffffffLL ? ~0ull : (u64)value;
        fields[i].code = SUCCESS;
    }
    return SUCCESS;
}

/* Processes: `compute 4711,4712` are pids; each holds 512 MiB. */
typedef struct { u32 pid; u64 memory; u32 gpu_instance, compute_instance; } context;
static int contexts(device d, const char *key, u32 *count, context *out) {
    char value[256] = "";
    u32 room = *count, found = 0;
    find(gpu_of(d), key, value, sizeof value);
    for (char *pid = strtok(value, ","); pid; pid = strtok(NULL, ",")) {
        if (found < room) out[found] = (context){ atoi(pid), 512ull << 20, ~0u, ~0u };
        found++;
    }
    *count = found;
    return found > room ? INSUFFICIENT_SIZE : SUCCESS;
}
int nvmlDeviceGetComputeRunningProcesses_v3(device d, u32 *count, context *out) { ENTER(d); return contexts(d, "compute", count, out); }
int nvmlDeviceGetGraphicsRunningProcesses_v3(device d, u32 *count, context *out) { ENTER(d); return contexts(d, "graphics", count, out); }
int nvmlDeviceGetMPSComputeRunningProcesses_v3(device d, u32 *count, context *out) { ENTER(d); return contexts(d, "mps", count, out); }
typedef struct { u32 pid; u64 time; u32 sm, memory, encoder, decoder; } share;
int nvmlDeviceGetProcessUtilization(device d, share *out, u32 *count, u64 since) {
    ENTER(d);
    u64 now = get(gpu_of(d), "share_time", 0);
    if (now <= since) return NOT_FOUND;
    if (*count < 2) { *count = 2; return INSUFFICIENT_SIZE; }
    out[0] = (share){ get(gpu_of(d), "share_pid", 0), now, 66, 22, 0, 4000 };
    *count = 1;
    return SUCCESS;
}

/* GPM: a sample is a number; metrics are what `gpm.ID` says, in tenths. */
typedef struct { u32 version, is; } gpm_support;
int nvmlGpmQueryDeviceSupport(device d, gpm_support *out) { ENTER(d); out->is = get(gpu_of(d), "gpm", 1); return SUCCESS; }
int nvmlGpmSampleAlloc(void **out) { SYSTEM(); *out = calloc(1, sizeof(int)); return SUCCESS; }
int nvmlGpmSampleFree(void *sample) { SYSTEM(); free(sample); return SUCCESS; }
int nvmlGpmSampleGet(device d, int *sample) { ENTER(d); *sample = gpu_of(d) + 1; return SUCCESS; }
int nvmlGpmMigSampleGet(device d, u32 instance, int *sample) { ENTER(d); *sample = 100 * instance + gpu_of(d) + 1; return SUCCESS; }
typedef struct { u32 id; int code; double value; char *texts[3]; } gpm_metric;
typedef struct { u32 version, count; int *first, *second; gpm_metric metrics[210]; } gpm_request;
int nvmlGpmMetricsGet(gpm_request *request) {
    SYSTEM();
    if (request->version != 1 || !*request->first || !*request->second) return INVALID_ARGUMENT;
    int gpu = *request->second % 100 - 1;
    for (u32 i = 0; i < request->count; i++) {
        char key[64];
        snprintf(key, sizeof key, "gpm.%u", request->metrics[i].id);
        int id = request->metrics[i].id;
        long long value = get(gpu, key, id < 100 ? 10 * id : -1);
        request->metrics[i].code = value < 0 ? NOT_SUPPORTED : SUCCESS;
        request->metrics[i].value = value / 10.0;
    }
    return SUCCESS;
}

/* MIG: `mig 1` turns it on, `instances 2` says how many of seven there are, from place 1 on. */
PAIR(nvmlDeviceGetMigMode, "mig", 0, "mig_pending", get(gpu_of(d), "mig", 0))
NUMBER(nvmlDeviceGetMaxMigDeviceCount, "mig_max", 7)
int nvmlDeviceGetMigDeviceHandleByIndex(device d, u32 index, device *out) {
    ENTER(d);
    if (index < 1 || index > get(gpu_of(d), "instances", 0)) return NOT_FOUND;
    *out = handle(gpu_of(d), index);
    return SUCCESS;
}
int nvmlDeviceGetGpuInstanceId(device d, u32 *out) { ENTER(d); *out = 6 + instance_of(d); return SUCCESS; }
int nvmlDeviceGetComputeInstanceId(device d, u32 *out) { ENTER(d); *out = 0; return SUCCESS; }

/* Events: `xid 79` with `xid_seq 1`, 2, 3 ... are events of a GPU that was registered. */
typedef struct { device d; u64 type, data; u32 gpu_instance, compute_instance; } event;
static char the_set[1];
static device registered[8];
static long long seen[8];
int nvmlDeviceGetSupportedEventTypes(device d, u64 *out) { ENTER(d); *out = get(gpu_of(d), "event_types", 0x1f); return SUCCESS; }
int nvmlEventSetCreate(void **out) { SYSTEM(); *out = the_set; return SUCCESS; }
int nvmlEventSetFree(void *set) { SYSTEM(); return set == the_set ? SUCCESS : INVALID_ARGUMENT; }
int nvmlDeviceRegisterEvents(device d, u64 types, void *set) {
    ENTER(d);
    if (types & ~get(gpu_of(d), "event_types", 0x1f) || set != the_set) return NOT_SUPPORTED;
    registered[gpu_of(d)] = d;
    return SUCCESS;
}
int nvmlEventSetWait_v2(void *set, event *out, u32 timeout_ms) {
    if (set != the_set) return INVALID_ARGUMENT;
    for (u32 waited = 0; waited < timeout_ms; waited++) {
        for (int gpu = 0; gpu < 8; gpu++) {
            long long seq = registered[gpu] ? get(gpu, "xid_seq", 0) : 0;
            if (seq > seen[gpu]) {
                seen[gpu]++;
                *out = (event){ registered[gpu], 8, get(gpu, "xid", 0), ~0u, ~0u };
                return SUCCESS;
            }
        }
        usleep(1000);
    }
    return TIMEOUT;
}

/* Clocks: what was set stands in FILE.calls. */
int nvmlDeviceSetGpuLockedClocks(device d, u32 min, u32 max) {
    char line[96]; ENTER(d); snprintf(line, sizeof line, "gpu_clocks=%u..%u", min, max); note(line, gpu_of(d)); return SUCCESS;
}
int nvmlDeviceResetGpuLockedClocks(device d) { ENTER(d); return SUCCESS; }
int nvmlDeviceSetMemoryLockedClocks(device d, u32 min, u32 max) {
    char line[96]; ENTER(d); snprintf(line, sizeof line, "memory_clocks=%u..%u", min, max); note(line, gpu_of(d)); return SUCCESS;
}
int nvmlDeviceResetMemoryLockedClocks(device d) { ENTER(d); return SUCCESS; }
static int list(const u32 *all, u32 len, u32 *count, u32 *out) {
    u32 room = *count;
    *count = len;
    if (room < len) return INSUFFICIENT_SIZE;
    memcpy(out, all, len * sizeof *all);
    return SUCCESS;
}
int nvmlDeviceGetSupportedMemoryClocks(device d, u32 *count, u32 *out) {
    static const u32 all[] = { 2619, 1593 };
    ENTER(d); return list(all, 2, count, out);
}
int nvmlDeviceGetSupportedGraphicsClocks(device d, u32 memory, u32 *count, u32 *out) {
    static const u32 all[] = { 1980, 1965, 1200, 345 };
    ENTER(d); return memory == 2619 ? list(all, 4, count, out) : NOT_FOUND;
}
#endif
