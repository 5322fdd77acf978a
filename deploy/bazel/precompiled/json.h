// Third-party headers of files that include JSON's: library.h and JSON itself.

#pragma once

#include "deploy/bazel/precompiled/library.h"
#include "nlohmann/json.hpp"
