// Whether this program can compute on a device, for code that starts islands.

#ifndef WORKER_API_DEVICE_H_
#define WORKER_API_DEVICE_H_

#include "worker/island/group/device.h"  // IWYU pragma: export

#endif  // WORKER_API_DEVICE_H_
