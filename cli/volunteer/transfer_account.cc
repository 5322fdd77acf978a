#include "cli/volunteer/transfer_account.h"

#include "absl/strings/str_cat.h"
#include "base/status/status_macros.h"
#include "cli/ca/ca_files.h"
#include "nlohmann/json.hpp"

namespace atl::cli {
namespace {

constexpr char kFile[] = "transfer.json";

}  // namespace

absl::StatusOr<TransferAccount> TransferAccount::Open(
    const std::string& directory, absl::TimeZone zone) {
  TransferAccount account(directory, zone);
  if (directory.empty()) return account;
  const absl::StatusOr<std::string> text = ReadFileIn(directory, kFile);
  if (absl::IsNotFound(text.status())) return account;
  RETURN_IF_ERROR(text.status());
  const nlohmann::json json = nlohmann::json::parse(*text, nullptr, false);
  const bool fits = json.is_object() && json.contains("day") &&
                    json["day"].is_string() && json.contains("bytes") &&
                    json["bytes"].is_number_integer();
  if (!fits || json["bytes"].get<int64_t>() < 0 ||
      !absl::ParseCivilTime(json["day"].get<std::string>(), &account.day_)) {
    return absl::DataLossError(
        absl::StrCat(FileIn(directory, kFile),
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
  RETURN_IF_ERROR(WriteFileIn(directory_, kFile, json.dump() + "\n"));
  changed_ = false;
  return absl::OkStatus();
}

}  // namespace atl::cli
