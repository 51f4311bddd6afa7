/* A libcuda.so.1 with one device, as an MPS server shows it: its numbers are those of $FAKE_CUDA,
 * "status multiprocessors free_bytes". Status -1 never answers, -2 crashes. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int status, multiprocessors;
static unsigned long long free_bytes;

int cuInit(unsigned int flags) {
    const char *setting = getenv("FAKE_CUDA");
    if (!setting || sscanf(setting, "%d %d %llu", &status, &multiprocessors, &free_bytes) != 3)
        return 1;
    if (status == -1)
        pause();
    if (status == -2)
        abort();
    return flags == 0 ? status : 1;
}

int cuDeviceGetCount(int *count) {
    *count = 1;
    return 0;
}

int cuDeviceGet(int *device, int ordinal) {
    *device = ordinal;
    return 0;
}

int cuDeviceGetAttribute(int *value, int attribute, int device) {
    *value = multiprocessors;
    return attribute == 16 && device == 0 ? 0 : 1;
}

int cuDevicePrimaryCtxRetain(void **context, int device) {
    *context = &status;
    return device;
}

int cuCtxSetCurrent(void *context) { return context == &status ? 0 : 201; }

int cuMemGetInfo_v2(size_t *free, size_t *total) {
    *free = free_bytes;
    *total = 1ULL << 37;
    return 0;
}

int cuDevicePrimaryCtxRelease_v2(int device) { return device; }

/* A kernel takes a microsecond a round. */
int cuModuleLoadData(void **module, const void *image) {
    *module = &status;
    return image ? 0 : 1;
}

int cuModuleGetFunction(void **function, void *module, const char *name) {
    *function = module;
    return name ? 0 : 1;
}

int cuMemAlloc_v2(unsigned long long *address, size_t bytes) {
    *address = bytes;
    return 0;
}

static unsigned int rounds;

int cuLaunchKernel(void *function, unsigned int x, unsigned int y, unsigned int z, unsigned int threads_x,
                   unsigned int threads_y, unsigned int threads_z, unsigned int shared_bytes, void *stream,
                   void **parameters, void **extra) {
    rounds = *(unsigned int *)parameters[1];
    return function && x && y && z && threads_x && threads_y && threads_z && !shared_bytes && !stream && !extra ? 0 : 1;
}

int cuCtxSynchronize(void) { return usleep(rounds); }
