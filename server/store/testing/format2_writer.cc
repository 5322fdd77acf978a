#include "server/store/testing/format2_writer.h"

#include <memory>

#include "base/status/check.h"
#include "rocksdb/db.h"
#include "rocksdb/options.h"

namespace atl::server {

void WriteFormat2(const std::string& directory,
                  const std::map<std::string, std::string>& records,
                  const std::string& format) {
  rocksdb::Options options;
  options.create_if_missing = true;
  rocksdb::DB* raw = nullptr;
  CHECK(rocksdb::DB::Open(options, directory, &raw).ok());
  const std::unique_ptr<rocksdb::DB> db(raw);
  CHECK(db->Put(rocksdb::WriteOptions(), "format", format).ok());
  for (const auto& [name, value] : records) {
    CHECK(db->Put(rocksdb::WriteOptions(), name, value).ok());
  }
}

}  // namespace atl::server
