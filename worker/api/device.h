// Tells code that starts islands whether this program can use a device.

#pragma once

#include "worker/island/group/device.h"  // IWYU pragma: export
