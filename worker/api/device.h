// Whether this program can compute on a device, for code that starts islands.

#pragma once

#include "worker/island/group/device.h"  // IWYU pragma: export
