// The machine's file system.

#ifndef BASE_IO_POSIX_FILE_SYSTEM_H_
#define BASE_IO_POSIX_FILE_SYSTEM_H_

#include "base/io/file_system.h"

namespace atl {

// Never destroyed. Thread-safe.
FileSystem& PosixFileSystem();

}  // namespace atl

#endif  // BASE_IO_POSIX_FILE_SYSTEM_H_
