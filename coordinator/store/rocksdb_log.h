// RocksDB's messages as lines of our log.
//
// RocksDB must not use its own log file: after a failed write to it, as on a
// full disk, the library (7.8) aborts at its next write, at the latest on
// close.

#pragma once

#include <memory>

#include "rocksdb/env.h"

namespace atl::coordinator {

// For rocksdb::Options::info_log: warnings and errors. Thread-safe.
std::shared_ptr<rocksdb::Logger> RocksDbLog();

}  // namespace atl::coordinator
