#include "worker/checkpoint/weight_files.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/codec/bits.h"
#include "base/io/files.h"
#include "base/status/status_macros.h"
#include "nlohmann/json.hpp"

namespace atl::worker {
namespace {

using Json = nlohmann::json;

constexpr char kWeights[] = "model.safetensors";
constexpr char kIndex[] = "model.safetensors.index.json";
constexpr int64_t kIndexBytesMax = 64 << 20;
constexpr int64_t kReadBytes = 4 << 20;

float WidenF16(uint16_t bits) {
  const uint32_t sign = uint32_t{bits & 0x8000u} << 16;
  const uint32_t exponent = (bits >> 10) & 0x1fu;
  const uint32_t mantissa = bits & 0x3ffu;
  if (exponent == 0x1f) {
    return codec::FromBits(sign | codec::kInfinityBits | mantissa << 13);
  }
  if (exponent != 0) {
    return codec::FromBits(sign | (exponent + 112) << 23 | mantissa << 13);
  }
  // Zero or subnormal: mantissa * 2^-24.
  const float value = static_cast<float>(mantissa) * 0x1p-24f;
  return sign != 0 ? -value : value;
}

void Widen(absl::string_view bytes, bool bf16, float* values) {
  for (size_t i = 0; i + 1 < bytes.size(); i += 2) {
    uint16_t bits;
    std::memcpy(&bits, bytes.data() + i, sizeof(bits));
    *values++ = bf16 ? codec::FloatOfBf16(bits) : WidenF16(bits);
  }
}

}  // namespace

absl::Status DamagedFile(const std::string& path, absl::string_view what) {
  return absl::DataLossError(absl::StrCat(
      path, " is damaged: ", what, "; export or copy the model again"));
}

absl::Status WeightFile::ReadBytes(int64_t offset, char* out,
                                   int64_t byte_count) {
  while (byte_count > 0) {
    // In pieces, so that hashing finds the bytes in the cache.
    const int64_t piece = std::min(byte_count, kReadBytes);
    ASSIGN_OR_RETURN(const int64_t got,
                     file_->ReadAt(offset, absl::MakeSpan(out, piece)));
    if (got != piece) return DamagedFile(path_, "it ends too early");
    sha_.Update(absl::string_view(out, piece));
    offset += piece;
    out += piece;
    byte_count -= piece;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<WeightFile>> WeightFile::Open(
    FileSystem& file_system, const std::string& path) {
  std::unique_ptr<WeightFile> weights(new WeightFile(path));
  ASSIGN_OR_RETURN(weights->file_, file_system.OpenForRead(path));
  ASSIGN_OR_RETURN(const int64_t file_bytes, weights->file_->Size());
  uint64_t header_bytes = 0;
  RETURN_IF_ERROR(
      weights->ReadBytes(0, reinterpret_cast<char*>(&header_bytes),
                         static_cast<int64_t>(sizeof(header_bytes))));
  weights->data_begin_ =
      static_cast<int64_t>(sizeof(header_bytes) + header_bytes);
  if (header_bytes > kSafetensorsHeaderBytesMax ||
      weights->data_begin_ > file_bytes) {
    return DamagedFile(path, "its header does not fit into it");
  }
  std::string header(header_bytes, '\0');
  RETURN_IF_ERROR(weights->ReadBytes(sizeof(header_bytes), header.data(),
                                     static_cast<int64_t>(header_bytes)));
  absl::StatusOr<std::vector<SafetensorsEntry>> entries =
      ParseSafetensorsHeader(header, file_bytes - weights->data_begin_);
  if (!entries.ok()) return DamagedFile(path, entries.status().message());
  weights->entries_ = *std::move(entries);
  return weights;
}

absl::Status WeightFile::ReadNext(float* values) {
  const SafetensorsEntry& entry = entries_[next_++];
  const int64_t byte_count = entry.end - entry.begin;
  const int64_t offset = data_begin_ + entry.begin;
  if (values != nullptr && entry.dtype == "F32") {
    return ReadBytes(offset, reinterpret_cast<char*>(values), byte_count);
  }
  const bool bf16 = entry.dtype == "BF16";
  if (values != nullptr && !bf16 && entry.dtype != "F16") {
    return absl::InvalidArgumentError(
        absl::StrCat(path_, ": tensor ", entry.name, " is ", entry.dtype,
                     ": convert it to F32, BF16 or F16"));
  }
  piece_.resize(kReadBytes);
  for (int64_t done = 0; done < byte_count; done += kReadBytes) {
    const int64_t piece = std::min(byte_count - done, kReadBytes);
    RETURN_IF_ERROR(ReadBytes(offset + done, piece_.data(), piece));
    if (values != nullptr) {
      Widen({piece_.data(), static_cast<size_t>(piece)}, bf16,
            values + done / 2);
    }
  }
  return absl::OkStatus();
}

absl::Status WeightFile::Read(int64_t offset, absl::Span<char> out) const {
  ASSIGN_OR_RETURN(const int64_t got, file_->ReadAt(offset, out));
  return got == static_cast<int64_t>(out.size())
             ? absl::OkStatus()
             : DamagedFile(path_, "it ends too early");
}

std::string WeightFile::FinishSha256() { return codec::ToHex(sha_.Finish()); }

absl::StatusOr<std::vector<std::string>> ListWeightFiles(
    FileSystem& file_system, const std::string& directory) {
  if (file_system.Exists(absl::StrCat(directory, "/", kWeights))) {
    return std::vector<std::string>{kWeights};
  }
  const std::string path = absl::StrCat(directory, "/", kIndex);
  const absl::StatusOr<std::string> text =
      ReadFile(file_system, path, kIndexBytesMax);
  if (absl::IsNotFound(text.status())) {
    return absl::NotFoundError(absl::StrCat(
        directory, " has neither ", kWeights, " nor ", kIndex,
        ": give the directory of a model in safetensors"));
  }
  RETURN_IF_ERROR(text.status());
  const Json json = Json::parse(*text, nullptr, /*allow_exceptions=*/false);
  const auto map = json.is_object() ? json.find("weight_map") : json.end();
  if (map == json.end() || !map->is_object() || map->empty()) {
    return DamagedFile(path, "it has no weight_map");
  }
  std::set<std::string> names;
  for (const Json& name : *map) {
    if (!name.is_string()) return DamagedFile(path, "a name is not a string");
    const auto& file = name.get_ref<const std::string&>();
    if (absl::StrContains(file, '/') || !absl::EndsWith(file, ".safetensors")) {
      return DamagedFile(path, "it names a file in another directory");
    }
    names.insert(file);
  }
  return std::vector<std::string>(names.begin(), names.end());
}

}  // namespace atl::worker
