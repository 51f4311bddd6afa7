/* A libnvidia-ml.so.1 whose GPUs are lines of a file.
 *
 * The file is named by $FAKE_NVML and read anew at each call, so a test changes the GPUs under a
 * running program. Lines are key=value; tests/agent/gpus.py writes them, as a whole or not at all:
 *
 *   init=0                        what nvmlInit returns; also what every call returns, if not 0
 *   hang=0                        1: every call waits until it is 0 again
 *   wait=0                        what waiting for a critical error returns, if not 0
 *   cuda=12080                    CUDA's version
 *   count=8
 *   gpu.<i>.<property>=...        see text_of() and its callers
 *   events=2                      critical errors so far
 *   event.<n>.gpu, event.<n>.xid  the n-th of them, from 0
 *
 * A property that is missing is one that such a GPU does not have: NOT_SUPPORTED. What is set (the
 * compute mode) goes to the file $FAKE_NVML.mode.<i>. Signatures and numbers are those of NVIDIA's
 * nvml.h; only what the agent calls is here.
 */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SUCCESS 0
#define INVALID_ARGUMENT 2
#define NOT_SUPPORTED 3
#define NO_PERMISSION 4
#define NOT_FOUND 6
#define INSUFFICIENT_SIZE 7
#define TIMEOUT 10
#define VERSION_MISMATCH 25
#define XID_CRITICAL_ERROR 8ULL
#define FILE_MAX 65536
#define GPUS_MAX 64
#define POLL_MS 5

typedef int status_t;
typedef struct { int index; } device_t;
typedef struct { unsigned long long total, free, used; } memory_t;
typedef struct {
    unsigned int version;
    unsigned long long total, reserved, free, used;
} memory_v2_t;
typedef struct { unsigned int gpu, memory; } utilization_t;
typedef struct {
    unsigned int pid;
    unsigned long long used;
    unsigned int gpu_instance, compute_instance;
} process_t;
typedef struct {
    device_t *device;
    unsigned long long type, data;
    unsigned int gpu_instance, compute_instance;
} event_t;
typedef struct { long seen; } event_set_t;
typedef struct {
    unsigned int multiprocessors, engines[7];
    unsigned long long memory_mib;
} attributes_t;

static device_t devices[GPUS_MAX];

static void pause_ms(long ms) {
    struct timespec time = {ms / 1000, (ms % 1000) * 1000000L};
    nanosleep(&time, NULL);
}

/* The value of a key into `value`; 0 where there is none. */
static int look_up(char *value, size_t size, const char *format, ...) {
    char key[128], text[FILE_MAX];
    va_list arguments;
    va_start(arguments, format);
    key[0] = '\n';
    vsnprintf(key + 1, sizeof key - 2, format, arguments);
    va_end(arguments);
    strcat(key, "=");
    const char *path = getenv("FAKE_NVML");
    FILE *file = path ? fopen(path, "r") : NULL;
    if (!file)
        return 0;
    text[0] = '\n';
    size_t read = fread(text + 1, 1, sizeof text - 2, file);
    fclose(file);
    text[read + 1] = '\0';
    const char *found = strstr(text, key);
    if (!found)
        return 0;
    found += strlen(key);
    size_t length = strcspn(found, "\n");
    if (length >= size)
        length = size - 1;
    memcpy(value, found, length);
    value[length] = '\0';
    return 1;
}

/* A number of the file as a whole, or `otherwise`. */
static long long number(const char *key, long long otherwise) {
    char value[64];
    return look_up(value, sizeof value, "%s", key) ? atoll(value) : otherwise;
}

static status_t state(void) {
    while (number("hang", 0))
        pause_ms(POLL_MS);
    return (status_t)number("init", SUCCESS);
}

/* A GPU's property; the GPU's own `error`, if it has one, comes before all others. */
static status_t text_of(device_t *device, const char *property, char *value, size_t size) {
    char error[16];
    status_t whole = state();
    if (whole != SUCCESS)
        return whole;
    if (look_up(error, sizeof error, "gpu.%d.error", device->index) && atoi(error))
        return atoi(error);
    return look_up(value, size, "gpu.%d.%s", device->index, property) ? SUCCESS : NOT_SUPPORTED;
}

static status_t number_of(device_t *device, const char *property, unsigned long long *value) {
    char text[64];
    status_t status = text_of(device, property, text, sizeof text);
    if (status == SUCCESS)
        *value = strtoull(text, NULL, 10);
    return status;
}

static status_t unsigned_of(device_t *device, const char *property, unsigned int *value) {
    unsigned long long wide;
    status_t status = number_of(device, property, &wide);
    if (status == SUCCESS)
        *value = (unsigned int)wide;
    return status;
}

status_t nvmlInitWithFlags(unsigned int flags) {
    (void)flags;
    return state();
}

status_t nvmlShutdown(void) { return SUCCESS; }

const char *nvmlErrorString(status_t status) {
    (void)status;
    return "an error of the mock";
}

status_t nvmlSystemGetCudaDriverVersion_v2(int *version) {
    *version = (int)number("cuda", 12080);
    return state();
}

status_t nvmlDeviceGetCount_v2(unsigned int *count) {
    *count = (unsigned int)number("count", 0);
    return state();
}

status_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, device_t **device) {
    if (index >= GPUS_MAX || index >= number("count", 0))
        return INVALID_ARGUMENT;
    devices[index].index = (int)index;
    *device = &devices[index];
    char value[2];
    status_t status = text_of(*device, "uuid", value, sizeof value);
    return status;
}

status_t nvmlDeviceGetUUID(device_t *device, char *uuid, unsigned int size) {
    return text_of(device, "uuid", uuid, size);
}

status_t nvmlDeviceGetName(device_t *device, char *name, unsigned int size) {
    return text_of(device, "name", name, size);
}

status_t nvmlDeviceGetMemoryInfo(device_t *device, memory_t *memory) {
    status_t status = number_of(device, "memory", &memory->total);
    if (status == SUCCESS)
        status = number_of(device, "used", &memory->used);
    memory->free = memory->total - memory->used;
    return status;
}

/* `used` has `reserved` in it, here not, as in the older version. `memory_v2`, if the GPU has it, is
 * the error with which an older driver answers. */
status_t nvmlDeviceGetMemoryInfo_v2(device_t *device, memory_v2_t *memory) {
    unsigned int error;
    memory_t all;
    if (memory->version != (2U << 24 | sizeof *memory))
        return VERSION_MISMATCH;
    if (unsigned_of(device, "memory_v2", &error) == SUCCESS && error)
        return (status_t)error;
    status_t status = nvmlDeviceGetMemoryInfo(device, &all);
    if (status == SUCCESS)
        status = number_of(device, "reserved", &memory->reserved);
    if (status != SUCCESS)
        return status;
    memory->total = all.total;
    memory->free = all.free;
    memory->used = all.used - memory->reserved;
    return SUCCESS;
}

status_t nvmlDeviceGetCudaComputeCapability(device_t *device, int *major, int *minor) {
    char text[16];
    status_t status = text_of(device, "capability", text, sizeof text);
    if (status == SUCCESS && sscanf(text, "%d.%d", major, minor) != 2)
        return INVALID_ARGUMENT;
    return status;
}

status_t nvmlDeviceGetNumGpuCores(device_t *device, unsigned int *cores) {
    return unsigned_of(device, "cores", cores);
}

status_t nvmlDeviceGetAttributes_v2(device_t *device, attributes_t *attributes) {
    memset(attributes, 0, sizeof *attributes);
    return unsigned_of(device, "multiprocessors", &attributes->multiprocessors);
}

status_t nvmlDeviceGetMigMode(device_t *device, unsigned int *current, unsigned int *pending) {
    *pending = 0;
    return unsigned_of(device, "mig", current);
}

status_t nvmlDeviceGetComputeMode(device_t *device, unsigned int *mode) {
    char path[4096], text[16] = "";
    snprintf(path, sizeof path, "%s.mode.%d", getenv("FAKE_NVML"), device->index);
    FILE *file = fopen(path, "r");
    if (!file)
        return unsigned_of(device, "mode", mode);
    if (!fgets(text, sizeof text, file))
        text[0] = '\0';
    fclose(file);
    *mode = (unsigned int)atoi(text);
    return state();
}

status_t nvmlDeviceSetComputeMode(device_t *device, unsigned int mode) {
    char path[4096], fresh[4104];
    unsigned int locked = 0;
    if (unsigned_of(device, "mode_locked", &locked) == SUCCESS && locked)
        return NO_PERMISSION;
    snprintf(path, sizeof path, "%s.mode.%d", getenv("FAKE_NVML"), device->index);
    snprintf(fresh, sizeof fresh, "%s.new", path);
    FILE *file = fopen(fresh, "w");
    if (!file)
        return NO_PERMISSION;
    fprintf(file, "%u", mode);
    fclose(file);
    return rename(fresh, path) ? NO_PERMISSION : state();
}

status_t nvmlDeviceGetTotalEccErrors(device_t *device, unsigned int type, unsigned int counter,
                                     unsigned long long *count) {
    /* uncorrected, since the last reset */
    return type == 1 && counter == 0 ? number_of(device, "ecc", count) : INVALID_ARGUMENT;
}

status_t nvmlDeviceGetRemappedRows(device_t *device, unsigned int *corrected,
                                   unsigned int *uncorrected, unsigned int *pending,
                                   unsigned int *failed) {
    *corrected = *uncorrected = 0;
    status_t status = unsigned_of(device, "rows_pending", pending);
    return status == SUCCESS ? unsigned_of(device, "rows_failed", failed) : status;
}

status_t nvmlDeviceGetRetiredPagesPendingStatus(device_t *device, unsigned int *pending) {
    return unsigned_of(device, "pages_pending", pending);
}

status_t nvmlDeviceGetUtilizationRates(device_t *device, utilization_t *utilization) {
    utilization->memory = 0;
    return unsigned_of(device, "utilization", &utilization->gpu);
}

status_t nvmlDeviceGetTemperature(device_t *device, unsigned int sensor, unsigned int *celsius) {
    return sensor == 0 ? unsigned_of(device, "temperature", celsius) : INVALID_ARGUMENT;
}

/* `property` is "pid:bytes,pid:bytes"; NVML does not report the bytes of a process without them. */
static status_t processes(device_t *device, const char *property, unsigned int *count,
                          process_t *found) {
    char text[4096], *remaining = text, *entry;
    unsigned int number = 0, room = *count;
    status_t status = text_of(device, property, text, sizeof text);
    if (status != SUCCESS)
        return status;
    while ((entry = strsep(&remaining, ",")) != NULL) {
        if (!*entry)
            continue;
        if (found && number < room) {
            char *bytes = strchr(entry, ':');
            found[number].pid = (unsigned int)strtoul(entry, NULL, 10);
            found[number].used =
                bytes && bytes[1] ? strtoull(bytes + 1, NULL, 10) : (unsigned long long)-1;
            found[number].gpu_instance = found[number].compute_instance = 0xFFFFFFFF;
        }
        number++;
    }
    *count = number;
    return number > (found ? room : 0) ? INSUFFICIENT_SIZE : SUCCESS;
}

status_t nvmlDeviceGetComputeRunningProcesses_v3(device_t *device, unsigned int *count,
                                                 process_t *found) {
    return processes(device, "processes", count, found);
}

status_t nvmlDeviceGetMPSComputeRunningProcesses_v3(device_t *device, unsigned int *count,
                                                    process_t *found) {
    return processes(device, "mps_processes", count, found);
}

status_t nvmlEventSetCreate(event_set_t **set) {
    *set = malloc(sizeof **set);
    (*set)->seen = number("events", 0);
    return state();
}

status_t nvmlEventSetFree(event_set_t *set) {
    free(set);
    return SUCCESS;
}

status_t nvmlDeviceGetSupportedEventTypes(device_t *device, unsigned long long *types) {
    (void)device;
    *types = XID_CRITICAL_ERROR;
    return state();
}

status_t nvmlDeviceRegisterEvents(device_t *device, unsigned long long types, event_set_t *set) {
    (void)device;
    (void)set;
    return types == XID_CRITICAL_ERROR ? state() : INVALID_ARGUMENT;
}

status_t nvmlEventSetWait_v2(event_set_t *set, event_t *event, unsigned int timeout_ms) {
    char value[64];
    for (long waited_ms = 0; waited_ms < (long)timeout_ms; waited_ms += POLL_MS) {
        status_t status = state();
        if (status == SUCCESS)
            status = (status_t)number("wait", SUCCESS);
        if (status != SUCCESS)
            return status;
        if (number("events", 0) > set->seen) {
            memset(event, 0, sizeof *event);
            long index = look_up(value, sizeof value, "event.%ld.gpu", set->seen) ? atol(value) : 0;
            event->device = index < GPUS_MAX ? &devices[index] : NULL;
            event->type = XID_CRITICAL_ERROR;
            if (look_up(value, sizeof value, "event.%ld.xid", set->seen))
                event->data = strtoull(value, NULL, 10);
            set->seen++;
            return SUCCESS;
        }
        pause_ms(POLL_MS);
    }
    return TIMEOUT;
}
