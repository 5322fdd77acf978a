// What RocksDB has to say, as lines of our log.
//
// Its own log file must not be used: once a write to it has failed, as on a
// full disk, the library asserts that nobody writes there again, and writes
// there again when it is closed (7.8).

#ifndef BASE_OBS_ROCKSDB_LOG_H_
#define BASE_OBS_ROCKSDB_LOG_H_

#include <memory>

// style-ok(include): the stores of two programs share it.
#include "rocksdb/env.h"

namespace atl {

// For rocksdb::Options::info_log: warnings and errors. Thread-safe.
std::shared_ptr<rocksdb::Logger> RocksDbLog();

}  // namespace atl

#endif  // BASE_OBS_ROCKSDB_LOG_H_
