#include "worker/checkpoint/checkpoint.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/codec/sha256.h"
#include "base/io/files.h"
#include "base/layout/digest.h"
#include "base/status/annotate.h"
#include "base/status/status_macros.h"
#include "nlohmann/json.hpp"
#include "worker/checkpoint/model_config_file.h"
#include "worker/checkpoint/safetensors.h"

namespace atl::worker {
namespace {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

constexpr char kWeights[] = "model.safetensors";
constexpr char kConfig[] = "config.json";
constexpr char kGenerationConfig[] = "generation_config.json";
constexpr char kManifest[] = "manifest.json";
constexpr int kManifestFormat = 1;
constexpr int64_t kPieceBytes = 4 << 20;
constexpr int64_t kSmallFileBytesMax = 16 << 20;

std::string PathOf(const std::string& directory, absl::string_view name) {
  return absl::StrCat(directory, "/", name);
}

absl::string_view BytesOf(absl::Span<const float> values) {
  return {reinterpret_cast<const char*>(values.data()),
          values.size() * sizeof(float)};
}

// A file that is being written, hashed on its way.
class HashedFile {
 public:
  static absl::StatusOr<std::unique_ptr<HashedFile>> Create(
      FileSystem& file_system, const std::string& path) {
    auto file = std::make_unique<HashedFile>();
    ASSIGN_OR_RETURN(file->file_, file_system.OpenForWrite(path));
    return file;
  }

  absl::Status Append(absl::string_view bytes) {
    while (!bytes.empty()) {
      // In pieces, so that what is hashed is still in the cache.
      const absl::string_view piece = bytes.substr(0, kPieceBytes);
      sha_.Update(piece);
      RETURN_IF_ERROR(file_->WriteAt(size_bytes_, piece));
      size_bytes_ += static_cast<int64_t>(piece.size());
      bytes.remove_prefix(piece.size());
    }
    return absl::OkStatus();
  }

  // Syncs it and adds it to the manifest.
  absl::Status Finish(absl::string_view name, OrderedJson& files) {
    RETURN_IF_ERROR(file_->Sync());
    files.push_back({{"name", std::string(name)},
                     {"bytes", size_bytes_},
                     {"sha256", codec::ToHex(sha_.Finish())}});
    return absl::OkStatus();
  }

  int64_t size_bytes() const { return size_bytes_; }

 private:
  std::unique_ptr<RandomAccessFile> file_;
  codec::Sha256 sha_;
  int64_t size_bytes_ = 0;
};

absl::Status WriteText(FileSystem& file_system, const std::string& directory,
                       const char* name, absl::string_view text,
                       OrderedJson& files, int64_t& size_bytes) {
  ASSIGN_OR_RETURN(const auto file, HashedFile::Create(
                                        file_system, PathOf(directory, name)));
  RETURN_IF_ERROR(file->Append(text));
  size_bytes += file->size_bytes();
  return file->Finish(name, files);
}

absl::Status WriteWeights(FileSystem& file_system,
                          const std::string& directory,
                          const v1::Layout& layout,
                          absl::Span<const float> parameters,
                          OrderedJson& files, int64_t& size_bytes) {
  std::vector<SafetensorsEntry> entries;
  for (const v1::TensorSpec& tensor : layout.tensors()) {
    SafetensorsEntry entry;
    entry.name = tensor.name();
    entry.shape.assign(tensor.shape().begin(), tensor.shape().end());
    entries.push_back(std::move(entry));
  }
  const std::string preamble = SafetensorsPreamble(entries);
  ASSIGN_OR_RETURN(
      const auto file,
      HashedFile::Create(file_system, PathOf(directory, kWeights)));
  RETURN_IF_ERROR(file->Append(preamble));
  RETURN_IF_ERROR(file->Append(BytesOf(parameters)));
  size_bytes += file->size_bytes();
  return file->Finish(kWeights, files);
}

// Removes a directory with its files, if it is there.
void RemoveDirectory(FileSystem& file_system, const std::string& directory) {
  const absl::StatusOr<std::vector<std::string>> names =
      file_system.List(directory);
  if (!names.ok()) return;
  for (const std::string& name : *names) {
    file_system.Remove(PathOf(directory, name)).IgnoreError();
  }
  file_system.Remove(directory).IgnoreError();
}

absl::Status WriteFiles(FileSystem& file_system, const std::string& directory,
                        const v1::ModelSpec& model, const v1::Layout& layout,
                        absl::Span<const float> parameters,
                        const CheckpointSource& source,
                        CheckpointFiles& written) {
  OrderedJson files = OrderedJson::array();
  RETURN_IF_ERROR(WriteWeights(file_system, directory, layout, parameters,
                               files, written.size_bytes));
  RETURN_IF_ERROR(WriteText(file_system, directory, kConfig,
                            ModelConfigJson(model), files,
                            written.size_bytes));
  RETURN_IF_ERROR(WriteText(file_system, directory, kGenerationConfig,
                            GenerationConfigJson(model), files,
                            written.size_bytes));
  ASSIGN_OR_RETURN(const RunLayout run_layout, RunLayout::Create(layout));
  written.parameters_sha256 = ParametersSha256(run_layout, parameters);
  OrderedJson manifest;
  manifest["format"] = kManifestFormat;
  manifest["kind"] = "atoll checkpoint";
  manifest["run_id"] = source.run_id;
  manifest["run_epoch"] = source.run_epoch;
  manifest["commit_seq"] = source.commit_seq;
  manifest["version"] = source.version;
  manifest["layout_fingerprint"] =
      absl::StrFormat("%016x", run_layout.fingerprint());
  manifest["element_count"] = run_layout.element_count();
  manifest["parameters_sha256"] = written.parameters_sha256;
  manifest["files"] = std::move(files);
  OrderedJson own = OrderedJson::array();  // It does not list itself.
  RETURN_IF_ERROR(WriteText(file_system, directory, kManifest,
                            manifest.dump(2) + "\n", own,
                            written.size_bytes));
  return file_system.SyncDirectory(directory);
}

// Puts `temporary` in the place of `directory`.
absl::Status PutInPlace(FileSystem& file_system, const std::string& temporary,
                        const std::string& directory) {
  const std::string old = absl::StrCat(directory, ".old");
  const bool replaces = file_system.Exists(directory);
  if (replaces) {
    RemoveDirectory(file_system, old);
    RETURN_IF_ERROR(file_system.Rename(directory, old));
  }
  RETURN_IF_ERROR(file_system.Rename(temporary, directory));
  RETURN_IF_ERROR(file_system.SyncDirectory(DirectoryOf(directory)));
  if (replaces) RemoveDirectory(file_system, old);
  return absl::OkStatus();
}

absl::Status CheckTarget(FileSystem& file_system,
                         const std::string& directory) {
  if (!file_system.Exists(directory)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::vector<std::string> names,
                   file_system.List(directory));
  if (names.empty() || file_system.Exists(PathOf(directory, kManifest))) {
    return absl::OkStatus();
  }
  return absl::AlreadyExistsError(
      absl::StrCat(directory,
                   " holds something that is no checkpoint: give another "
                   "directory, or empty this one"));
}

absl::Status Damaged(const std::string& path, absl::string_view what) {
  return absl::DataLossError(absl::StrCat(
      path, " is damaged: ", what, "; export or copy the model again"));
}

// The SHA-256 that the manifest gives for the weights; empty without one.
absl::StatusOr<std::string> ExpectedSha256(FileSystem& file_system,
                                           const std::string& directory) {
  const std::string path = PathOf(directory, kManifest);
  const absl::StatusOr<std::string> text =
      ReadFile(file_system, path, kSmallFileBytesMax);
  if (absl::IsNotFound(text.status())) return "";
  RETURN_IF_ERROR(text.status());
  const Json json = Json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || json.value("format", Json()) != kManifestFormat) {
    return Damaged(path, "it is not a manifest of this program's format");
  }
  const auto files = json.find("files");
  if (files == json.end() || !files->is_array()) {
    return Damaged(path, "it lists no files");
  }
  for (const Json& file : *files) {
    if (!file.is_object()) continue;
    const auto name = file.find("name");
    const auto sha = file.find("sha256");
    if (name != file.end() && *name == kWeights && sha != file.end() &&
        sha->is_string()) {
      return sha->get<std::string>();
    }
  }
  return Damaged(path, absl::StrCat("it does not list ", kWeights));
}

absl::Status ReadExactly(const RandomAccessFile& file, const std::string& path,
                         int64_t offset, absl::Span<char> out,
                         codec::Sha256& sha) {
  while (!out.empty()) {
    const absl::Span<char> piece = out.subspan(0, kPieceBytes);
    ASSIGN_OR_RETURN(const int64_t got, file.ReadAt(offset, piece));
    if (got != static_cast<int64_t>(piece.size())) {
      return Damaged(path, "it ends too early");
    }
    sha.Update({piece.data(), piece.size()});
    offset += got;
    out.remove_prefix(got);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<CheckpointFiles> WriteCheckpoint(
    FileSystem& file_system, const std::string& directory,
    const v1::ModelSpec& model, const v1::Layout& layout,
    absl::Span<const float> parameters, const CheckpointSource& source) {
  std::string target = directory;
  while (target.size() > 1 && absl::EndsWith(target, "/")) target.pop_back();
  RETURN_IF_ERROR(CheckTarget(file_system, target));
  const std::string temporary = absl::StrCat(target, ".tmp");
  RemoveDirectory(file_system, temporary);
  RETURN_IF_ERROR(file_system.CreateDirectories(temporary));
  CheckpointFiles written;
  absl::Status status = WriteFiles(file_system, temporary, model, layout,
                                   parameters, source, written);
  if (status.ok()) status = PutInPlace(file_system, temporary, target);
  if (!status.ok()) {
    RemoveDirectory(file_system, temporary);
    return Annotate(status, absl::StrCat("cannot write the checkpoint ",
                                         target));
  }
  return written;
}

absl::StatusOr<v1::ModelSpec> ReadCheckpointModel(
    FileSystem& file_system, const std::string& directory) {
  const std::string path = PathOf(directory, kConfig);
  const absl::StatusOr<std::string> text =
      ReadFile(file_system, path, kSmallFileBytesMax);
  if (absl::IsNotFound(text.status())) {
    return absl::NotFoundError(absl::StrCat(
        directory, " holds no model: there is no config.json in it"));
  }
  RETURN_IF_ERROR(text.status());
  absl::StatusOr<v1::ModelSpec> model = ParseModelConfig(*text);
  if (!model.ok()) return Annotate(model.status(), directory);
  return model;
}

absl::Status ReadCheckpoint(FileSystem& file_system,
                            const std::string& directory,
                            const v1::Layout& layout,
                            absl::Span<float> parameters) {
  const std::string path = PathOf(directory, kWeights);
  absl::StatusOr<std::unique_ptr<RandomAccessFile>> opened =
      file_system.OpenForRead(path);
  if (absl::IsNotFound(opened.status())) {
    return absl::NotFoundError(absl::StrCat(
        directory, " has no ", kWeights,
        " (models in several files are not read): merge them into one"));
  }
  RETURN_IF_ERROR(opened.status());
  const RandomAccessFile& file = **opened;
  ASSIGN_OR_RETURN(const int64_t file_bytes, file.Size());
  ASSIGN_OR_RETURN(const std::string expected,
                   ExpectedSha256(file_system, directory));
  ASSIGN_OR_RETURN(const RunLayout run_layout, RunLayout::Create(layout));

  codec::Sha256 sha;
  uint64_t header_bytes = 0;
  RETURN_IF_ERROR(ReadExactly(
      file, path, 0,
      {reinterpret_cast<char*>(&header_bytes), sizeof(header_bytes)}, sha));
  const int64_t data_begin =
      static_cast<int64_t>(sizeof(header_bytes) + header_bytes);
  if (header_bytes > kSafetensorsHeaderBytesMax || data_begin > file_bytes) {
    return Damaged(path, "its header does not fit into it");
  }
  std::string header(header_bytes, '\0');
  RETURN_IF_ERROR(ReadExactly(file, path, sizeof(header_bytes),
                              absl::MakeSpan(header), sha));
  const absl::StatusOr<std::vector<SafetensorsEntry>> entries =
      ParseSafetensorsHeader(header, file_bytes - data_begin);
  if (!entries.ok()) return Damaged(path, entries.status().message());

  std::map<std::string, const v1::TensorSpec*> tensors;
  std::map<std::string, const TensorPlace*> places;
  for (const v1::TensorSpec& tensor : layout.tensors()) {
    tensors[tensor.name()] = &tensor;
  }
  for (const TensorPlace& place : run_layout.tensors()) {
    places[place.name] = &place;
  }
  if (static_cast<int64_t>(parameters.size()) != run_layout.element_count()) {
    return absl::InternalError("parameters are not of the layout's length");
  }
  for (const SafetensorsEntry& entry : *entries) {
    const auto found = tensors.find(entry.name);
    const auto differs = [&](absl::string_view what) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": tensor ", entry.name, " ", what));
    };
    if (found == tensors.end()) return differs("is not in this model");
    if (entry.dtype != "F32") {
      return differs(absl::StrCat("is ", entry.dtype, ": convert it to F32"));
    }
    const v1::TensorSpec& tensor = *found->second;
    if (!std::equal(tensor.shape().begin(), tensor.shape().end(),
                    entry.shape.begin(), entry.shape.end())) {
      return differs("has another shape than the model's");
    }
    const TensorPlace& place = *places[entry.name];
    float* const values = parameters.data() + place.model_offset;
    RETURN_IF_ERROR(ReadExactly(
        file, path, data_begin + entry.begin,
        {reinterpret_cast<char*>(values),
         static_cast<size_t>(place.element_count) * sizeof(float)},
        sha));
    tensors.erase(found);
  }
  if (!tensors.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, " lacks tensor ", tensors.begin()->first, " of the model"));
  }
  if (!expected.empty() && codec::ToHex(sha.Finish()) != expected) {
    return Damaged(path, "its SHA-256 is not the manifest's");
  }
  return absl::OkStatus();
}

}  // namespace atl::worker
