// The machine's file system.

#pragma once

#include "base/io/file_system.h"

namespace atl {

// Never destroyed. Thread-safe.
FileSystem& PosixFileSystem();

}  // namespace atl
