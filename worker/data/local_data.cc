#include "worker/data/local_data.h"

#include <filesystem>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/object_store/object_url.h"
#include "base/status/refusal.h"

namespace atl::worker {
namespace {

// A path of a peer, fit for a terminal.
std::string Quoted(absl::string_view path) {
  return absl::StrCat("\"", absl::Utf8SafeCEscape(path), "\"");
}

}  // namespace

std::string DataPlace::Describe() const {
  if (path.empty()) return "";
  return absl::StrCat("opens ", Quoted(path), ": ", right);
}

absl::StatusOr<std::string> ResolveLinks(const std::string& path) {
  std::error_code error;
  const std::filesystem::path resolved =
      std::filesystem::canonical(path, error);
  if (error) return absl::ErrnoToStatus(error.value(), Quoted(path));
  return resolved.string();
}

std::string FindNamedPath(const v1::DataSpec& data) {
  if (data.format() == v1::DATA_FORMAT_EXTERNAL) return "";
  if (!absl::StartsWith(data.url(), "file://")) return data.path();
  const absl::StatusOr<ObjectUrl> url =
      ParseObjectUrl(data.url().substr(0, data.url().rfind('/') + 1));
  if (!url.ok()) return "";
  return url->path.size() > 1 && absl::EndsWith(url->path, "/")
             ? url->path.substr(0, url->path.size() - 1)
             : url->path;
}

bool IsBelow(absl::string_view path, absl::string_view root) {
  if (!absl::StartsWith(path, "/") || !absl::StartsWith(root, "/"))
    return false;
  return path == root || root == "/" ||
         absl::StartsWith(path, absl::StrCat(root, "/"));
}

absl::StatusOr<DataPlace> FindDataPlace(
    const v1::DataSpec& data, const LocalDataRights& rights,
    const std::function<absl::StatusOr<std::string>(const std::string&)>&
        resolve) {
  if (data.format() == v1::DATA_FORMAT_EXTERNAL) return DataPlace();
  if (!rights.data_path.empty()) {
    return DataPlace{rights.data_path, "given with --data"};
  }
  const bool is_file_url = absl::StartsWith(data.url(), "file://");
  if (!data.url().empty() && !is_file_url) return DataPlace();
  const std::string named = FindNamedPath(data);
  if (named.empty()) {
    return absl::NotFoundError(
        "the run names no data: give the path of yours with --data PATH");
  }
  if (!rights.has_tls && rights.coordinator_is_loopback) {
    return DataPlace{named,
                     "the run names it, and its coordinator is on this "
                     "machine, without TLS"};
  }
  if (!rights.roots.empty()) {
    const absl::StatusOr<std::string> resolved = resolve(named);
    for (const std::string& root : rights.roots) {
      if (resolved.ok() && IsBelow(*resolved, root)) {
        return DataPlace{*resolved,
                         absl::StrCat("`atoll data allow` has ", Quoted(root))};
      }
    }
  }
  return Refuse(absl::StatusCode::kFailedPrecondition, kDataNotAllowed,
                absl::StrCat("the run names ", Quoted(named),
                             " on this machine, and no allowed folder holds "
                             "it: give the data with --data PATH, or allow its "
                             "folder once with `atoll data allow DIR`"));
}

}  // namespace atl::worker
