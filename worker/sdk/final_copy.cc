#include "worker/sdk/final_copy.h"

#include <cstdint>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/codec/f32_bytes.h"
#include "base/io/open_directory.h"
#include "base/io/own_file.h"
#include "base/layout/digest.h"

namespace atl::worker {
namespace {

constexpr char kMagic[] = "ATOLL FINAL PARAMETERS 1\n";
constexpr char kEnding[] = ".final";

std::string Stem(const SavePlace& place) {
  return absl::StrCat(place.run_id, ".", place.island_id);
}

// How the file `stem`.final begins.
std::string Beginning(absl::string_view stem) {
  return absl::StrCat(kMagic, stem, "\n");
}

std::string Header(const SavePlace& place, const v1::GetRunResponse& found) {
  std::string header =
      absl::StrCat(Beginning(Stem(place)), found.run().run_uid(), "\n");
  for (const v1::FragmentVersion& at : found.cut()) {
    absl::StrAppend(&header, at.fragment(), " ", at.version(), " ",
                    Digest128::FromProto(at.digest()).ToHex(), "\n");
  }
  return header;
}

// Fills `out`. False: the file is shorter, or cannot be read.
bool ReadAll(const RandomAccessFile& file, int64_t offset,
             absl::Span<char> out) {
  const absl::StatusOr<int64_t> got = file.ReadAt(offset, out);
  return got.ok() && *got == static_cast<int64_t>(out.size());
}

bool AreFinal(const v1::GetRunResponse& found, const RunLayout& layout,
              const std::vector<absl::Span<float>>& fragments) {
  for (int32_t f = 0; f < layout.fragment_count(); ++f) {
    const Digest128 digest = RangeDigest(
        layout, f, {0, layout.fragment_block_count(f)}, fragments[f]);
    if (digest != Digest128::FromProto(found.cut(f).digest())) return false;
  }
  return true;
}

}  // namespace

std::string FinalCopyPath(const SavePlace& place) {
  return absl::StrCat(place.directory, "/", Stem(place), kEnding);
}

bool ReadFinalCopy(FileSystem& files, const SavePlace& place,
                   const v1::GetRunResponse& found, const RunLayout& layout,
                   const std::vector<absl::Span<float>>& fragments) {
  const auto directory = OpenDirectory::Open(files, place.directory);
  if (!directory.ok()) return false;
  const auto file =
      (*directory)->OpenForRead(absl::StrCat(Stem(place), kEnding));
  if (!file.ok()) return false;
  const std::string header = Header(place, found);
  std::string begin(header.size(), '\0');
  if (!ReadAll(**file, 0, absl::MakeSpan(begin)) || begin != header) {
    return false;
  }
  auto offset = static_cast<int64_t>(header.size());
  for (const absl::Span<float> values : fragments) {
    const absl::Span<char> bytes(reinterpret_cast<char*>(values.data()),
                                 values.size() * sizeof(float));
    if (!ReadAll(**file, offset, bytes)) return false;
    offset += static_cast<int64_t>(bytes.size());
  }
  return AreFinal(found, layout, fragments);
}

absl::Status WriteFinalCopy(FileSystem& files, const SavePlace& place,
                            const v1::GetRunResponse& found,
                            const RunLayout& layout,
                            const std::vector<absl::Span<float>>& fragments) {
  if (!AreFinal(found, layout, fragments)) {
    return absl::FailedPreconditionError(
        "the island does not hold the final versions");
  }
  const std::string header = Header(place, found);
  std::vector<absl::string_view> pieces = {header};
  for (const absl::Span<float> values : fragments) {
    pieces.push_back(codec::F32Bytes(values));
  }
  return ReplaceOwnFile(files, FinalCopyPath(place), pieces);
}

void RemoveFinalCopies(FileSystem& files, const SavePlace& place) {
  const auto directory = OpenDirectory::Open(files, place.directory);
  if (!directory.ok()) return;
  const auto names = (*directory)->List();
  if (!names.ok()) return;
  for (const std::string& name : *names) {
    absl::string_view stem = OwnFileName(name);
    if (!absl::ConsumeSuffix(&stem, kEnding) ||
        !absl::EndsWith(stem, absl::StrCat(".", place.island_id))) {
      continue;
    }
    std::string begin(Beginning(stem).size(), '\0');
    const auto file = (*directory)->OpenForRead(name);
    if (file.ok() && ReadAll(**file, 0, absl::MakeSpan(begin)) &&
        begin == Beginning(stem)) {
      (*directory)->Remove(name).IgnoreError();
    }
  }
}

}  // namespace atl::worker
