#include "cli/volunteer/transfer_account.h"

#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/io/private_directory.h"
#include "base/object_store/object_store.h"
#include "base/status/status_macros.h"
#include "cli/ca/ca_files.h"
#include "nlohmann/json.hpp"

namespace atl::cli {
namespace {

constexpr char kTransferFile[] = "transfer.json";

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

absl::StatusOr<TransferAccount> TransferAccount::Open(
    const std::string& directory, absl::TimeZone zone) {
  TransferAccount account(directory, zone);
  if (directory.empty()) return account;
  const absl::StatusOr<std::string> text = ReadFileIn(directory, kTransferFile);
  if (absl::IsNotFound(text.status())) return account;
  RETURN_IF_ERROR(text.status());
  const nlohmann::json json = nlohmann::json::parse(*text, nullptr, false);
  const bool fits = json.is_object() && json.contains("day") &&
                    json["day"].is_string() && json.contains("bytes") &&
                    json["bytes"].is_number_integer();
  if (!fits || json["bytes"].get<int64_t>() < 0 ||
      !absl::ParseCivilTime(json["day"].get<std::string>(), &account.day_)) {
    return absl::DataLossError(
        absl::StrCat(FileIn(directory, kTransferFile),
                     ", which counts the day's transfers, is damaged: remove "
                     "it to count from 0"));
  }
  account.byte_count_ = json["bytes"].get<int64_t>();
  return account;
}

void TransferAccount::Add(int64_t byte_count, absl::Time now) {
  const absl::CivilDay today = absl::ToCivilDay(now, zone_);
  // A day that is more than tomorrow was seen by a clock that was wrong.
  if (today > day_ || day_ - today > 1) {
    day_ = today;
    byte_count_ = 0;
    changed_ = true;
  }
  if (byte_count <= 0) return;
  byte_count_ += byte_count;
  changed_ = true;
}

absl::Status TransferAccount::Save() {
  if (!changed_ || directory_.empty()) return absl::OkStatus();
  const nlohmann::json json = {{"day", absl::FormatCivilTime(day_)},
                               {"bytes", byte_count_}};
  RETURN_IF_ERROR(MakePrivateDirectory(directory_));
  RETURN_IF_ERROR(WriteFileIn(directory_, kTransferFile, json.dump() + "\n"));
  changed_ = false;
  return absl::OkStatus();
}

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
