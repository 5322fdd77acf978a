// The Store in a RocksDB directory.
//
// Format 1:
//
//   "format"                          "1"
//   "log/" RUN_ID "/" REVISION        storage.v1.Record, serialised
//
// REVISION is 8 bytes, big-endian, so that the order of keys is the order of
// records. A run_id has no "/". Every write goes through the write-ahead log
// and is synced. RocksDB checks a checksum of every block that it reads.

#ifndef COORDINATOR_STORE_ROCKSDB_STORE_H_
#define COORDINATOR_STORE_ROCKSDB_STORE_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "coordinator/store/store.h"

namespace atl::coordinator {

// Opens the store in `directory`, and makes it if there is none.
//
// UNAVAILABLE: another process has it open. FAILED_PRECONDITION: it is of a
// newer format. DATA_LOSS: it is damaged. Messages name the directory and say
// what to do.
absl::StatusOr<std::unique_ptr<Store>> OpenRocksdbStore(
    const std::string& directory);

}  // namespace atl::coordinator

#endif  // COORDINATOR_STORE_ROCKSDB_STORE_H_
