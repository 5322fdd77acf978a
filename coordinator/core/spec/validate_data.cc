#include "coordinator/core/spec/validate_spec.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/layout/ids.h"
#include "coordinator/core/spec/checker.h"

namespace atl::coordinator {
namespace {

constexpr int32_t kDataShardsMax = 65536;
constexpr size_t kPlaceBytesMax = 4096;

// Returns the fault of a manifest's URL; empty: none.
absl::string_view FindUrlFault(absl::string_view url) {
  if (url.size() > kPlaceBytesMax) return "is longer than 4096 bytes";
  const bool is_plain = std::all_of(url.begin(), url.end(), [](char c) {
    return absl::ascii_isgraph(static_cast<unsigned char>(c));
  });
  if (!is_plain) return "has a character that a URL cannot have";
  absl::string_view rest = url;
  if (absl::ConsumePrefix(&rest, "file://")) {
    return absl::StartsWith(rest, "/")
               ? ""
               : "must have an absolute path: file:///DIR/manifest.json";
  }
  const bool is_plaintext = absl::ConsumePrefix(&rest, "http://");
  if (!is_plaintext && !absl::ConsumePrefix(&rest, "https://") &&
      !absl::ConsumePrefix(&rest, "s3://")) {
    return "must begin with https://, s3:// or file:///";
  }
  const absl::string_view host = rest.substr(0, rest.find('/'));
  if (host.empty() || host.size() == rest.size()) {
    return "must name a host or bucket, and the path of a manifest";
  }
  if (absl::StrContains(host, '@')) {
    return "must not have a user name or password: every island sees the URL";
  }
  if (rest.find_first_of("?#") != absl::string_view::npos) {
    return "must not have a query or fragment: every island sees the URL, and "
           "a signature in it would expire";
  }
  const absl::string_view name = host.substr(0, host.rfind(':'));
  if (is_plaintext && name != "localhost" && name != "127.0.0.1" &&
      name != "[::1]") {
    return "is plaintext: http:// is for loopback hosts only";
  }
  return "";
}

void CheckUrl(const v1::DataSpec& data, Checker& check) {
  if (data.url().empty()) {
    check.Require(data.order() == v1::DATA_ORDER_UNSPECIFIED, "data.order",
                  "BY_FILE needs data.url: a manifest gives the order of the "
                  "files");
    return;
  }
  const absl::string_view fault = FindUrlFault(data.url());
  check.Require(fault.empty(), "data.url", fault);
  check.Require(data.path().empty(), "data.path",
                "must be empty, because data.url is given: choose one");
  check.Require(data.order() == v1::DATA_ORDER_BY_FILE, "data.order",
                "must be BY_FILE, because data.url is given: islands fetch one "
                "file after another");
  check.Require(!data.fingerprint().empty(), "data.fingerprint",
                "must be that of the manifest at data.url");
  check.Require(data.validation_fraction() == 0, "data.validation_fraction",
                "must be 0, because data.url is given: the manifest says which "
                "files are held out");
  check.Require(data.seed() == 0, "data.seed",
                "must be 0, because data.url is given: files are read in the "
                "manifest's order");
}

}  // namespace

void CheckData(const v1::RunSpec& spec,
               std::vector<FieldViolation>& violations) {
  Checker check(violations);
  const v1::DataSpec& data = spec.data();
  check.Require(data.format() != v1::DATA_FORMAT_UNSPECIFIED &&
                    v1::DataFormat_IsValid(data.format()),
                "data.format", "must be BYTES, LLMC, UINT16 or EXTERNAL");
  check.Require(data.path().size() <= kPlaceBytesMax, "data.path",
                "is longer than 4096 bytes");
  check.Require(data.fingerprint().empty() ||
                    IsLowerHex(data.fingerprint(), 64),
                "data.fingerprint", "must be empty or 64 lower-case hex digits");
  CheckUrl(data, check);
  check.Rate(data.validation_fraction(), "data.validation_fraction");
  check.InRange(data.data_shard_count(), 1, kDataShardsMax,
                "data.data_shard_count");
  check.Require(
      data.fingerprint().empty() ||
          data.data_shard_count() >= spec.schedule().island_count_min(),
      "data.data_shard_count",
      "must be at least schedule.island_count_min: shared data is read by one "
      "island a shard, so the first round could not open");
  // An external trainer evaluates on data of its choice.
  if (spec.evaluation().every_round_count() > 0 &&
      data.format() != v1::DATA_FORMAT_EXTERNAL) {
    check.InRange(spec.evaluation().batch_count(), 1, 1 << 24,
                  "evaluation.batch_count");
    check.Require(data.validation_fraction() > 0 || !data.url().empty(),
                  "data.validation_fraction",
                  "must be greater than 0 if evaluation.every_round_count is: "
                  "there would be nothing to evaluate on");
  }
}

}  // namespace atl::coordinator
