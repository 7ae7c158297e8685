/* NVML (libnvidia-ml.so.1), as far as TensorFlow asks it how cards are connected. */
#include "simulator.h"

#include <stdio.h>

#pragma GCC visibility push(default)

typedef int status;

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3 };

status nvmlInit_v2(void)
{
    return SUCCESS;
}

status nvmlShutdown(void)
{
    return SUCCESS;
}

status nvmlDeviceGetHandleByPciBusId_v2(const char *name, struct card **handle)
{
    unsigned domain, bus;
    if (sscanf(name, "%x:%x", &domain, &bus) != 2 || bus < 1 || (int)bus > card_count)
        return INVALID_ARGUMENT;
    *handle = &cards[bus - 1];
    return SUCCESS;
}

status nvmlDeviceGetCurrPcieLinkGeneration(UNUSED struct card *handle, unsigned *generation)
{
    *generation = 3;
    return SUCCESS;
}

status nvmlDeviceGetCurrPcieLinkWidth(UNUSED struct card *handle, unsigned *width)
{
    *width = 16;
    return SUCCESS;
}

status nvmlDeviceGetNvLinkState(UNUSED struct card *handle, UNUSED unsigned link, unsigned *is_active)
{
    *is_active = 0;
    return NOT_SUPPORTED;
}

status nvmlDeviceGetGpuFabricInfoV(UNUSED struct card *handle, UNUSED void *info)
{
    return NOT_SUPPORTED;
}

const char *nvmlErrorString(status error)
{
    return error == SUCCESS ? "Success" : "error of the simulated card";
}
