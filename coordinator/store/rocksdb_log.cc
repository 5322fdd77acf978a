#include "coordinator/store/rocksdb_log.h"

#include <cstdarg>
#include <cstdio>

#include "base/obs/log.h"

namespace atl::coordinator {
namespace {

class RocksDbLogger final : public rocksdb::Logger {
 public:
  RocksDbLogger() : Logger(rocksdb::InfoLogLevel::WARN_LEVEL) {}

  using Logger::Logv;
  void Logv(const char* format, va_list arguments) override {
    char text[512];
    std::vsnprintf(text, sizeof(text), format, arguments);
    LOG(WARNING) << "rocksdb: " << text;
  }
};

}  // namespace

std::shared_ptr<rocksdb::Logger> RocksDbLog() {
  return std::make_shared<RocksDbLogger>();
}

}  // namespace atl::coordinator
