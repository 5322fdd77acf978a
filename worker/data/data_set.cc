#include "worker/data/data_set.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/codec/sha256.h"
#include "base/status/status_macros.h"
#include "worker/data/data_file_reader.h"
#include "worker/data/data_files.h"

namespace atl::worker {
namespace {

// A file's tokens within the sequence of all tokens.
struct Piece {
  DataFile file;
  int64_t first_token = 0;
  TokenLayout layout;
};

class FileDataSet : public DataSet {
 public:
  FileDataSet(const v1::DataSpec& spec, std::vector<DataFile> sorted,
              std::vector<Piece> pieces)
      : DataSet(spec), sorted_(std::move(sorted)), pieces_(std::move(pieces)) {
    const Piece& last = pieces_.back();
    token_bytes_ = last.layout.token_bytes;
    token_count_ = last.first_token + last.layout.token_count;
  }

  absl::Status Hold() {
    if (token_count_ * token_bytes_ > kHeldBytesMax) return absl::OkStatus();
    std::string held(token_count_ * token_bytes_, '\0');
    for (const Piece& piece : pieces_) {
      ASSIGN_OR_RETURN(const DataFileReader reader,
                       DataFileReader::Open(piece.file.path));
      RETURN_IF_ERROR(
          reader.ReadAt(piece.layout.header_bytes,
                        absl::MakeSpan(held).subspan(
                            piece.first_token * token_bytes_,
                            piece.layout.token_count * token_bytes_)));
    }
    held_ = std::move(held);
    return absl::OkStatus();
  }

  int64_t token_count() const override { return token_count_; }

  absl::Status Read(int64_t offset, absl::Span<int32_t> tokens) const override {
    const int64_t count = static_cast<int64_t>(tokens.size());
    if (offset < 0 || count > token_count_ - offset) {
      return absl::OutOfRangeError(
          absl::StrCat("tokens [", offset, ", ", offset + count,
                       ") are not in a data set of ", token_count_));
    }
    if (!held_.empty()) {
      WidenTokens(held_.data() + offset * token_bytes_, token_bytes_, tokens);
      return absl::OkStatus();
    }
    std::string bytes(count * token_bytes_, '\0');
    RETURN_IF_ERROR(ReadBytes(offset, count, bytes.data()));
    WidenTokens(bytes.data(), token_bytes_, tokens);
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> Fingerprint() const override {
    std::string text =
        absl::StrCat("atoll data 1 ", static_cast<int>(spec_.format()), "\n");
    for (const DataFile& file : sorted_) {
      ASSIGN_OR_RETURN(const DataFileReader reader,
                       DataFileReader::Open(file.path));
      ASSIGN_OR_RETURN(const std::string sha256,
                       reader.ComputeSha256(file.size_bytes));
      absl::StrAppend(&text, file.size_bytes, " ", sha256, " ",
                      file.relative_path, "\n");
    }
    return codec::ToHex(codec::ComputeSha256(text));
  }

 private:
  absl::Status ReadBytes(int64_t offset, int64_t count, char* out) const {
    auto piece = std::upper_bound(pieces_.begin(), pieces_.end(), offset,
                                  [](int64_t token, const Piece& p) {
                                    return token < p.first_token;
                                  }) -
                 1;
    while (count > 0) {
      const int64_t begin = offset - piece->first_token;
      const int64_t part = std::min(count, piece->layout.token_count - begin);
      // Opened each time: a set may have more files than a process may open.
      ASSIGN_OR_RETURN(const DataFileReader reader,
                       DataFileReader::Open(piece->file.path));
      RETURN_IF_ERROR(
          reader.ReadAt(piece->layout.header_bytes + begin * token_bytes_,
                        absl::MakeSpan(out, part * token_bytes_)));
      out += part * token_bytes_;
      offset += part;
      count -= part;
      ++piece;
    }
    return absl::OkStatus();
  }

  const std::vector<DataFile> sorted_;
  const std::vector<Piece> pieces_;  // Shuffled; without empty ones.
  int64_t token_bytes_ = 1;
  int64_t token_count_ = 0;
  std::string held_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<DataSet>> DataSet::Open(
    const v1::DataSpec& spec, const std::string& path) {
  if (spec.format() == v1::DATA_FORMAT_EXTERNAL) {
    return absl::InvalidArgumentError(
        "the data is external (data.format EXTERNAL): only the trainer of an "
        "island can read it");
  }
  if (!(spec.validation_fraction() >= 0) || spec.validation_fraction() >= 1) {
    return absl::InvalidArgumentError(
        "the data's validation_fraction must be in [0, 1)");
  }
  if (spec.data_shard_count() < 1) {
    return absl::InvalidArgumentError(
        "the data's data_shard_count must be at least 1");
  }
  ASSIGN_OR_RETURN(std::vector<DataFile> sorted,
                   ListDataFiles(path, spec.format()));
  std::vector<DataFile> shuffled = sorted;
  ShuffleDataFiles(spec.seed(), shuffled);
  std::vector<Piece> pieces;
  int64_t token_count = 0;
  for (const DataFile& file : shuffled) {
    ASSIGN_OR_RETURN(const DataFileReader reader,
                     DataFileReader::Open(file.path));
    ASSIGN_OR_RETURN(const TokenLayout layout,
                     reader.ReadLayout(file.size_bytes, spec.format()));
    if (layout.token_count == 0) continue;
    if (!pieces.empty() && pieces[0].layout.token_bytes != layout.token_bytes) {
      return absl::InvalidArgumentError(absl::StrCat(
          "data files ", pieces[0].file.path, " and ", file.path,
          " have tokens of different sizes: make both with one tokenizer"));
    }
    pieces.push_back({file, token_count, layout});
    token_count += layout.token_count;
  }
  if (pieces.empty()) {
    return absl::InvalidArgumentError("the data set has no tokens");
  }
  auto data_set =
      std::make_unique<FileDataSet>(spec, std::move(sorted), std::move(pieces));
  RETURN_IF_ERROR(data_set->Hold());
  return data_set;
}

TokenRange DataSet::validation() const {
  const int64_t count = token_count();
  const int64_t held_out =
      std::min(count, static_cast<int64_t>(static_cast<double>(count) *
                                           spec_.validation_fraction()));
  return {count - held_out, count};
}

std::vector<WindowGroup> DataSet::window_groups(int32_t data_shard) const {
  const int64_t size = validation().begin / spec_.data_shard_count();
  return {{.key = data_shard,
           .tokens = {data_shard * size, (data_shard + 1) * size},
           .name = "a data shard"}};
}

}  // namespace atl::worker
