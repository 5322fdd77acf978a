#include "worker/data/data_set.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/codec/sha256.h"
#include "base/status/status_macros.h"
#include "worker/data/data_files.h"
#include "worker/data/token_file.h"

namespace atl::worker {
namespace {

constexpr int64_t kReadBytes = 1 << 20;

class Descriptor {
 public:
  static absl::StatusOr<Descriptor> Open(const std::string& path) {
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
      return absl::ErrnoToStatus(
          errno, absl::StrCat("data file ", path, " cannot be opened"));
    }
    return Descriptor(fd);
  }
  Descriptor(Descriptor&& other) : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }

  absl::Status ReadAt(const std::string& path, int64_t offset, char* out,
                      int64_t count) const {
    while (count > 0) {
      const ssize_t got = ::pread(fd_, out, count, offset);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) {
        return absl::DataLossError(absl::StrCat(
            "data file ", path, " cannot be read: ", std::strerror(errno)));
      }
      if (got == 0) {
        return absl::DataLossError(absl::StrCat(
            "data file ", path,
            " is shorter than when it was opened: the data of a run must not "
            "change while it trains"));
      }
      offset += got;
      out += got;
      count -= got;
    }
    return absl::OkStatus();
  }

 private:
  explicit Descriptor(int fd) : fd_(fd) {}
  int fd_;
};

// A file's tokens within the sequence of all tokens.
struct Piece {
  DataFile file;
  int64_t first_token = 0;
  int64_t token_count = 0;
  int64_t header_bytes = 0;
  int64_t token_bytes = 1;
};

absl::StatusOr<Piece> LlmcPiece(const DataFile& file) {
  const auto wrong = [&](absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat(
        "data file ", file.path, " is not an llm.c token file: ", what,
        "; check the format of the run's data"));
  };
  if (file.size_bytes < kTokenFileHeaderBytes) return wrong("it has no header");
  ASSIGN_OR_RETURN(const Descriptor descriptor, Descriptor::Open(file.path));
  int32_t header[3];
  RETURN_IF_ERROR(descriptor.ReadAt(
      file.path, 0, reinterpret_cast<char*>(header), sizeof(header)));
  const TokenFileKind* const kind =
      std::find_if(std::begin(kTokenFileKinds), std::end(kTokenFileKinds),
                   [&](const TokenFileKind& k) { return k.magic == header[0]; });
  if (kind == std::end(kTokenFileKinds)) {
    return wrong("its magic number is neither 20240520 nor 20240801");
  }
  if (header[1] != kind->version) {
    return wrong(absl::StrCat("its version is not ", kind->version));
  }
  Piece piece;
  piece.header_bytes = kTokenFileHeaderBytes;
  piece.token_count = header[2];
  piece.token_bytes = kind->token_bytes;
  if (header[2] < 0 || file.size_bytes - kTokenFileHeaderBytes !=
                           kind->token_bytes * header[2]) {
    return wrong(absl::StrCat("its header says ", header[2],
                              " tokens, but its length does not match"));
  }
  return piece;
}

absl::StatusOr<Piece> MakePiece(const DataFile& file, v1::DataFormat format) {
  Piece piece;
  switch (format) {
    case v1::DATA_FORMAT_BYTES:
      piece.token_count = file.size_bytes;
      break;
    case v1::DATA_FORMAT_UINT16:
      if (file.size_bytes % 2 != 0) {
        return absl::InvalidArgumentError(
            absl::StrCat("data file ", file.path, " has an odd length (",
                         file.size_bytes,
                         " bytes): it cannot hold uint16 tokens"));
      }
      piece.token_count = file.size_bytes / 2;
      piece.token_bytes = 2;
      break;
    case v1::DATA_FORMAT_LLMC: {
      ASSIGN_OR_RETURN(piece, LlmcPiece(file));
      break;
    }
    default:
      return absl::InvalidArgumentError(
          "the data's format is not set: bytes, llmc or uint16");
  }
  piece.file = file;
  return piece;
}

class FileDataSet : public DataSet {
 public:
  FileDataSet(const v1::DataSpec& spec, std::vector<DataFile> sorted,
              std::vector<Piece> pieces)
      : DataSet(spec), sorted_(std::move(sorted)), pieces_(std::move(pieces)) {
    token_bytes_ = pieces_.back().token_bytes;
    token_count_ = pieces_.back().first_token + pieces_.back().token_count;
  }

  absl::Status Hold() {
    if (token_count_ * token_bytes_ > kHeldBytesMax) return absl::OkStatus();
    std::string held(token_count_ * token_bytes_, '\0');
    for (const Piece& piece : pieces_) {
      ASSIGN_OR_RETURN(const Descriptor descriptor,
                       Descriptor::Open(piece.file.path));
      RETURN_IF_ERROR(descriptor.ReadAt(
          piece.file.path, piece.header_bytes,
          held.data() + piece.first_token * token_bytes_,
          piece.token_count * token_bytes_));
    }
    held_ = std::move(held);
    return absl::OkStatus();
  }

  int64_t token_count() const override { return token_count_; }

  absl::Status Read(int64_t offset,
                    absl::Span<int32_t> tokens) const override {
    const int64_t count = static_cast<int64_t>(tokens.size());
    if (offset < 0 || count > token_count_ - offset) {
      return absl::OutOfRangeError(
          absl::StrCat("tokens [", offset, ", ", offset + count,
                       ") are not in a data set of ", token_count_));
    }
    if (!held_.empty()) {
      Widen(held_.data() + offset * token_bytes_, tokens);
      return absl::OkStatus();
    }
    std::string bytes(count * token_bytes_, '\0');
    RETURN_IF_ERROR(ReadBytes(offset, count, bytes.data()));
    Widen(bytes.data(), tokens);
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> Fingerprint() const override {
    std::string text =
        absl::StrCat("atoll data 1 ", static_cast<int>(spec_.format()), "\n");
    std::string buffer(kReadBytes, '\0');
    for (const DataFile& file : sorted_) {
      codec::Sha256 sha;
      ASSIGN_OR_RETURN(const Descriptor descriptor,
                       Descriptor::Open(file.path));
      for (int64_t at = 0; at < file.size_bytes; at += kReadBytes) {
        const int64_t count = std::min(kReadBytes, file.size_bytes - at);
        RETURN_IF_ERROR(
            descriptor.ReadAt(file.path, at, buffer.data(), count));
        sha.Update(absl::string_view(buffer.data(), count));
      }
      absl::StrAppend(&text, file.size_bytes, " ", codec::ToHex(sha.Finish()), " ",
                      file.relative_path, "\n");
    }
    return codec::ToHex(codec::ComputeSha256(text));
  }

 private:
  void Widen(const char* bytes, absl::Span<int32_t> tokens) const {
    if (token_bytes_ == 1) {
      for (size_t i = 0; i < tokens.size(); ++i) {
        tokens[i] = static_cast<uint8_t>(bytes[i]);
      }
      return;
    }
    for (size_t i = 0; i < tokens.size(); ++i) {
      uint32_t token = 0;
      for (int64_t k = token_bytes_; k-- > 0;) {
        token = token << 8 | static_cast<uint8_t>(bytes[token_bytes_ * i + k]);
      }
      // Clamps a token that exceeds int32; it stays out of every vocabulary.
      tokens[i] = static_cast<int32_t>(std::min<uint32_t>(token, INT32_MAX));
    }
  }

  absl::Status ReadBytes(int64_t offset, int64_t count, char* out) const {
    auto piece = std::upper_bound(pieces_.begin(), pieces_.end(), offset,
                                  [](int64_t token, const Piece& p) {
                                    return token < p.first_token;
                                  }) -
                 1;
    while (count > 0) {
      const int64_t begin = offset - piece->first_token;
      const int64_t part = std::min(count, piece->token_count - begin);
      // Opened each time: a set may have more files than a process may open.
      ASSIGN_OR_RETURN(const Descriptor descriptor,
                       Descriptor::Open(piece->file.path));
      RETURN_IF_ERROR(descriptor.ReadAt(
          piece->file.path, piece->header_bytes + begin * token_bytes_, out,
          part * token_bytes_));
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
  ASSIGN_OR_RETURN(
      std::vector<DataFile> sorted,
      ListDataFiles(path.empty() ? spec.path() : path, spec.format()));
  std::vector<DataFile> shuffled = sorted;
  ShuffleDataFiles(spec.seed(), shuffled);
  std::vector<Piece> pieces;
  int64_t token_count = 0;
  for (const DataFile& file : shuffled) {
    ASSIGN_OR_RETURN(Piece piece, MakePiece(file, spec.format()));
    if (piece.token_count == 0) continue;
    if (!pieces.empty() && pieces[0].token_bytes != piece.token_bytes) {
      return absl::InvalidArgumentError(absl::StrCat(
          "data files ", pieces[0].file.path, " and ", file.path,
          " have tokens of different sizes: make both with one tokenizer"));
    }
    piece.first_token = token_count;
    token_count += piece.token_count;
    pieces.push_back(std::move(piece));
  }
  if (pieces.empty()) {
    return absl::InvalidArgumentError("the data set has no tokens");
  }
  auto data_set = std::make_unique<FileDataSet>(spec, std::move(sorted),
                                                std::move(pieces));
  RETURN_IF_ERROR(data_set->Hold());
  return data_set;
}

TokenRange DataSet::validation() const {
  const int64_t count = token_count();
  const int64_t held_out = std::min(
      count, static_cast<int64_t>(static_cast<double>(count) *
                                  spec_.validation_fraction()));
  return {count - held_out, count};
}

TokenRange DataSet::shard(int32_t data_shard) const {
  const int64_t size = validation().begin / spec_.data_shard_count();
  return {data_shard * size, (data_shard + 1) * size};
}

}  // namespace atl::worker
