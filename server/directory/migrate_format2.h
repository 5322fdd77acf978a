// Changes a data directory of format 2 to format 3.
//
// Format 2 had the records of all runs in one RocksDB database, DATA_DIR/records,
// and a run's files in DATA_DIR/runs/RUN_ID.

#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/io/file_system.h"

namespace atl::server {

// True if the directory has a database of format 2. Asked only while it has no
// identity file.
bool HasFormat2(FileSystem& fs, const std::string& data_dir);

// Moves every shard's records to the shard's directory, gives the directories
// their new names, and keeps the database as DATA_DIR/records.format2. All of it
// is durable on return. After a crash or an error it can be called again, until
// the directory has an identity file. Returns the number of the server's starts.
//
// FAILED_PRECONDITION: the directory belongs to another server, or another
// process uses the database. DATA_LOSS: the database is damaged.
absl::StatusOr<int64_t> MigrateFormat2(FileSystem& fs,
                                       const std::string& data_dir,
                                       const std::string& server_id);

// The error for a directory of server `owner`.
absl::Status OtherServer(const std::string& owner,
                         const std::string& server_id);

}  // namespace atl::server
