#include "worker/data/data_files.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "worker/data/windows.h"

namespace atl::worker {
namespace {

namespace fs = std::filesystem;

absl::Status Failed(const std::string& what, const std::error_code& error) {
  return absl::ErrnoToStatus(error.value(),
                             absl::StrCat("data at ", what, " cannot be read"));
}

bool Takes(const std::string& path, v1::DataFormat format) {
  return format == v1::DATA_FORMAT_BYTES || absl::EndsWith(path, ".bin");
}

absl::StatusOr<std::vector<DataFile>> ListDirectory(const std::string& root,
                                                    v1::DataFormat format) {
  std::vector<DataFile> files;
  std::error_code error;
  fs::recursive_directory_iterator at(root, error);
  if (error) return Failed(root, error);
  for (const auto end = fs::end(at); at != end; at.increment(error)) {
    if (error) return Failed(root, error);
    // The status of the link, not of its target.
    const fs::file_status status = at->symlink_status(error);
    if (error) return Failed(at->path().string(), error);
    if (status.type() != fs::file_type::regular) continue;
    DataFile file;
    file.path = at->path().string();
    if (!Takes(file.path, format)) continue;
    file.relative_path = at->path().lexically_relative(root).string();
    file.size_bytes = static_cast<int64_t>(at->file_size(error));
    if (error) return Failed(file.path, error);
    if (file.size_bytes > 0) files.push_back(std::move(file));
  }
  if (error) return Failed(root, error);
  return files;
}

}  // namespace

absl::StatusOr<std::vector<DataFile>> ListDataFiles(const std::string& root,
                                                    v1::DataFormat format) {
  std::error_code error;
  const fs::file_status status = fs::status(root, error);
  if (status.type() == fs::file_type::not_found) {
    return absl::NotFoundError(
        absl::StrCat("no data at \"", root,
                     "\": give the path of a file or a directory that this "
                     "machine has"));
  }
  if (error) return Failed(root, error);
  std::vector<DataFile> files;
  if (status.type() == fs::file_type::directory) {
    auto listed = ListDirectory(root, format);
    if (!listed.ok()) return listed.status();
    files = *std::move(listed);
  } else {
    DataFile file;
    file.path = root;
    file.size_bytes = static_cast<int64_t>(fs::file_size(root, error));
    if (error) return Failed(root, error);
    if (file.size_bytes > 0) files.push_back(std::move(file));
  }
  if (files.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "data at \"", root, "\" has no ",
        format == v1::DATA_FORMAT_BYTES ? "file" : ".bin file",
        " with anything in it: give another path"));
  }
  std::sort(files.begin(), files.end(),
            [](const DataFile& a, const DataFile& b) {
              return a.relative_path < b.relative_path;
            });
  return files;
}

void ShuffleDataFiles(uint64_t seed, std::vector<DataFile>& files) {
  for (size_t i = files.size(); i-- > 1;) {
    std::swap(files[i], files[CounterHash(seed, i) % (i + 1)]);
  }
}

}  // namespace atl::worker
