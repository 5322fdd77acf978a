#include "cli/volunteer/counting_store.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/object_store/object_store.h"
#include "base/status/status_macros.h"

namespace atl::cli {
namespace {

class CountingStore : public ObjectStore {
 public:
  CountingStore(std::unique_ptr<ObjectStore> store,
                std::function<void(int64_t)> on_bytes)
      : store_(std::move(store)), on_bytes_(std::move(on_bytes)) {}

  absl::StatusOr<std::vector<ObjectInfo>> List(absl::string_view prefix,
                                               int64_t count_max) override {
    return store_->List(prefix, count_max);
  }
  absl::StatusOr<ObjectInfo> Stat(absl::string_view name) override {
    return store_->Stat(name);
  }
  absl::Status Read(absl::string_view name, const ReadRange& range,
                    ObjectSink sink) override {
    return store_->Read(name, range, [&](absl::string_view bytes) {
      on_bytes_(static_cast<int64_t>(bytes.size()));
      return sink(bytes);
    });
  }
  absl::StatusOr<std::unique_ptr<ObjectWriter>> Write(absl::string_view name,
                                                      WriteMode mode) override {
    return store_->Write(name, mode);
  }
  std::string GetUrl(absl::string_view name) const override {
    return store_->GetUrl(name);
  }

 private:
  const std::unique_ptr<ObjectStore> store_;
  const std::function<void(int64_t)> on_bytes_;
};

}  // namespace

worker::StoreOpener CountReads(worker::StoreOpener open,
                               std::function<void(int64_t)> on_bytes) {
  return [open = std::move(open), on_bytes = std::move(on_bytes)](
             const std::string& url, std::function<bool()> cancelled)
             -> absl::StatusOr<std::unique_ptr<ObjectStore>> {
    ASSIGN_OR_RETURN(std::unique_ptr<ObjectStore> store,
                     open(url, std::move(cancelled)));
    return std::make_unique<CountingStore>(std::move(store), on_bytes);
  };
}

}  // namespace atl::cli
