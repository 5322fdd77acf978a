// Objects that are files below a directory, or one file. Bytes are written to a
// hidden file in the same directory, synced, and given their name at Commit.
// Reading follows symbolic links. List, writing and removing follow none below
// the store's directory. Thread-compatible.

#pragma once

#include <memory>
#include <string>

#include "base/io/file_system.h"
#include "base/object_store/object_store.h"

namespace atl {

// `path` is absolute and need not exist. Writes go through `files`, which must
// outlive the store and be, or forward to, the machine's file system.
std::unique_ptr<ObjectStore> MakeFileStore(std::string path, FileSystem& files);

}  // namespace atl
