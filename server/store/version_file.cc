#include "server/store/version_file.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/codec/crc32c.h"
#include "base/codec/stream_copy.h"
#include "base/status/status_macros.h"
#include "server/store/header_page.h"
#include "server/store/records/server_records.pb.h"

namespace atl::server {
namespace {

constexpr absl::string_view kMagic = "ATOLLVER";

absl::string_view AsBytes(const float* elements, int64_t count) {
  return absl::string_view(reinterpret_cast<const char*>(elements),
                           static_cast<size_t>(count) * sizeof(float));
}

absl::string_view AsBytes(const std::vector<uint32_t>& table) {
  return absl::string_view(reinterpret_cast<const char*>(table.data()),
                           table.size() * sizeof(uint32_t));
}

}  // namespace

VersionFile::VersionFile(std::unique_ptr<RandomAccessFile> file,
                         std::string path, const ShardRange& range,
                         int state_count, bool writable)
    : file_(std::move(file)),
      path_(std::move(path)),
      places_(1 + state_count),
      range_(range),
      state_count_(state_count),
      writable_(writable),
      table_((1 + state_count) * range.block_count()) {}

int64_t VersionFile::ArrayOffset(int array) const {
  return kHeaderPageBytes +
         array * PaddedBytes(range_.element_count() * sizeof(float));
}

int64_t VersionFile::ImageElementCount(const ShardRange& range) {
  return PaddedBytes(range.element_count() * static_cast<int64_t>(sizeof(float))) /
         static_cast<int64_t>(sizeof(float));
}

int64_t VersionFile::TableOffset() const {
  return ArrayOffset(1 + state_count_);
}

int64_t VersionFile::size_bytes() const {
  return TableOffset() + static_cast<int64_t>(table_.size() * sizeof(uint32_t));
}

absl::StatusOr<std::unique_ptr<VersionFile>> VersionFile::Create(
    FileSystem& fs, const std::string& path, const ShardRange& range,
    int state_count) {
  // An earlier attempt left it; open readers are not affected.
  if (fs.Exists(path)) RETURN_IF_ERROR(fs.Remove(path));
  ASSIGN_OR_RETURN(std::unique_ptr<RandomAccessFile> file,
                   fs.OpenForWrite(path));
  std::unique_ptr<VersionFile> version(
      new VersionFile(std::move(file), path, range, state_count, true));
  const absl::Status reserved =
      version->file_->Preallocate(version->size_bytes());
  if (!reserved.ok()) {
    version.reset();
    fs.Remove(path).IgnoreError();
    return reserved;
  }
  return version;
}

bool VersionFile::Reuse(FileSystem& fs, const std::string& new_path) {
  if (!writable_ || !fs.Rename(path(), new_path).ok()) return false;
  set_path(new_path);
  identity_ = VersionIdentity();
  MutexLock lock(&mutex_);
  for (ArrayPlace& place : places_) place = ArrayPlace();
  replica_left_out_ = false;
  replica_maker_ = nullptr;
  sealed_ = false;
  writes_through_ = false;
  written_back_ = false;
  return true;
}

void VersionFile::SetImage(int array, VersionImage image, bool carried) {
  if (image != nullptr) {
    // The padding of the array in the file.
    std::fill(image.get() + range_.element_count(),
              image.get() + ImageElementCount(range_), 0.0f);
  }
  MutexLock lock(&mutex_);
  places_[array] = {std::move(image), carried};
}

bool VersionFile::carries(int array) const {
  MutexLock lock(&mutex_);
  return places_[array].carried;
}

VersionImage VersionFile::TakeImage(int array) {
  MutexLock lock(&mutex_);
  ArrayPlace& place = places_[array];
  // Other callers get the image only under the lock.
  if (!place.in_file || place.image.use_count() != 1) return nullptr;
  return std::move(place.image);
}

void VersionFile::LeaveOutReplica(ArrayMaker maker) {
  MutexLock lock(&mutex_);
  replica_left_out_ = true;
  replica_maker_ = std::make_shared<const ArrayMaker>(std::move(maker));
}

bool VersionFile::replica_left_out() const {
  MutexLock lock(&mutex_);
  return replica_left_out_;
}

void VersionFile::WriteThrough() {
  MutexLock lock(&mutex_);
  writes_through_ = true;
}

bool VersionFile::InMemory() const {
  MutexLock lock(&mutex_);
  for (const ArrayPlace& place : places_) {
    if (place.image == nullptr) return false;
  }
  return true;
}

void VersionFile::DropImage() {
  std::vector<VersionImage> dropped;
  MutexLock lock(&mutex_);
  if (!sealed_) return;
  for (ArrayPlace& place : places_) dropped.push_back(std::move(place.image));
}

float* VersionFile::FindImage(int array, VersionImage* keep) const {
  MutexLock lock(&mutex_);
  *keep = places_[array].image;
  return keep->get();
}

float* VersionFile::Map(int array, IndexRange blocks, VersionImage* keep) {
  float* const elements = FindImage(array, keep);
  if (elements == nullptr) return nullptr;
  return elements + range_.ElementOffset(blocks.begin);
}

absl::StatusOr<std::unique_ptr<VersionFile>> VersionFile::Open(
    FileSystem& fs, const std::string& path, const ShardRange& range,
    int state_count, bool writable) {
  absl::StatusOr<std::unique_ptr<RandomAccessFile>> file =
      writable ? fs.OpenForWrite(path) : fs.OpenForRead(path);
  if (absl::IsNotFound(file.status())) return file.status();
  if (!file.ok()) return absl::UnavailableError(file.status().message());
  std::unique_ptr<VersionFile> version(new VersionFile(
      *std::move(file), path, range, state_count, writable));
  const auto read = [&version](int64_t offset, absl::Span<char> out) {
    const absl::Status status = version->ReadBytes(offset, out);
    return version->disk_has_failed_
               ? absl::UnavailableError(status.message())
               : status;
  };
  std::string page(kHeaderPageBytes, '\0');
  RETURN_IF_ERROR(read(0, absl::MakeSpan(page)));
  records::VersionHeader header;
  RETURN_IF_ERROR(DecodeHeaderPage(page, kMagic, path, &header));
  if (header.fragment() != range.fragment() ||
      header.block_begin() != range.blocks().begin ||
      header.block_end() != range.blocks().end ||
      header.element_count() != range.element_count() ||
      header.state_count() != state_count) {
    return absl::DataLossError(
        absl::StrCat(path, " does not fit the run's layout or optimizer"));
  }
  RETURN_IF_ERROR(
      read(version->TableOffset(),
           absl::MakeSpan(reinterpret_cast<char*>(version->table_.data()),
                          version->table_.size() * sizeof(uint32_t))));
  if (codec::Crc32c(AsBytes(version->table_)) != header.table_crc32c()) {
    return absl::DataLossError(
        absl::StrCat(path, ": the table's checksum does not match"));
  }
  version->identity_ = {header.run_id(),
                        header.shard(),
                        header.version(),
                        header.commit_seq(),
                        Digest128::FromProto(header.digest()),
                        Digest128::FromProto(header.replica_digest()),
                        header.replica_left_out()};
  MutexLock lock(&version->mutex_);
  version->replica_left_out_ = header.replica_left_out();
  return version;
}

void VersionFile::NoteCrcs(int array, IndexRange blocks,
                           const float* elements) {
  const int64_t first = range_.ElementOffset(blocks.begin);
  uint32_t* table =
      table_.data() + array * range_.block_count() - range_.blocks().begin;
  for (int64_t b = blocks.begin; b < blocks.end; ++b) {
    const int64_t begin = range_.ElementOffset(b) - first;
    const int64_t end = range_.ElementOffset(b + 1) - first;
    table[b] = codec::Crc32c(AsBytes(elements + begin, end - begin));
  }
}

absl::Status VersionFile::Write(int array, IndexRange blocks,
                                const float* elements) {
  VersionImage keep;
  float* const mapped = Map(array, blocks, &keep);
  bool to_file = mapped == nullptr;
  {
    MutexLock lock(&mutex_);
    to_file |= writes_through_;
  }
  NoteCrcs(array, blocks, elements);
  if (to_file) RETURN_IF_ERROR(WriteToFile(array, blocks, elements));
  if (mapped != nullptr && mapped != elements) {
    const absl::string_view bytes =
        AsBytes(elements, range_.ElementCount(blocks));
    codec::StreamCopy(bytes.size(), bytes.data(),
                      reinterpret_cast<char*>(mapped));
  }
  return absl::OkStatus();
}

absl::Status VersionFile::WriteToFile(int array, IndexRange blocks,
                                      const float* elements) {
  return file_->WriteAt(
      ArrayOffset(array) + range_.ElementOffset(blocks.begin) *
                               static_cast<int64_t>(sizeof(float)),
      AsBytes(elements, range_.ElementCount(blocks)));
}

absl::Status VersionFile::WriteImage(int array) {
  VersionImage keep;
  const float* const elements = FindImage(array, &keep);
  if (elements == nullptr) return absl::OkStatus();
  const absl::string_view bytes = AsBytes(elements, ImageElementCount(range_));
  // A replica that is left out can be made again from files.
  const bool left_out = array == state_count_ && replica_left_out();
  if (!left_out) {
    RETURN_IF_ERROR(WriteStraight(*file_, ArrayOffset(array), bytes));
  }
  keep = nullptr;
  MutexLock lock(&mutex_);
  places_[array].in_file = true;
  return absl::OkStatus();
}

absl::Status VersionFile::WriteImages() {
  {
    MutexLock lock(&mutex_);
    if (written_back_) return absl::OkStatus();
  }
  for (int array = 1; array <= state_count_; ++array) {
    RETURN_IF_ERROR(WriteImage(array));
  }
  return WriteImage(0);
}

absl::Status VersionFile::Read(int array, IndexRange blocks,
                               float* elements) const {
  const int64_t first = range_.ElementOffset(blocks.begin);
  const int64_t count = range_.ElementCount(blocks);
  VersionImage keep;
  if (const float* const mapped = FindImage(array, &keep)) {
    std::memcpy(elements, mapped + first, count * sizeof(float));
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(ReadUnchecked(array, blocks, elements));
  const uint32_t* table =
      table_.data() + array * range_.block_count() - range_.blocks().begin;
  for (int64_t b = blocks.begin; b < blocks.end; ++b) {
    const int64_t begin = range_.ElementOffset(b) - first;
    const int64_t end = range_.ElementOffset(b + 1) - first;
    if (codec::Crc32c(AsBytes(elements + begin, end - begin)) != table[b]) {
      return absl::DataLossError(
          absl::StrCat(path(), ": the checksum of block ", b, " of array ",
                       array, " does not match"));
    }
  }
  return absl::OkStatus();
}

absl::Status VersionFile::ReadUnchecked(int array, IndexRange blocks,
                                        float* elements) const {
  if (array == state_count_ && array > 0) {
    std::shared_ptr<const ArrayMaker> maker;
    {
      MutexLock lock(&mutex_);
      maker = replica_maker_;
      if (replica_left_out_ && maker == nullptr) {
        return absl::DataLossError(
            absl::StrCat(path_,
                         " does not contain its replica, and the version "
                         "before is not here"));
      }
    }
    if (maker != nullptr) return (*maker)(blocks, elements);
  }
  return ReadBytes(
      ArrayOffset(array) + range_.ElementOffset(blocks.begin) *
                               static_cast<int64_t>(sizeof(float)),
      absl::MakeSpan(
          reinterpret_cast<char*>(elements),
          static_cast<size_t>(range_.ElementCount(blocks)) * sizeof(float)));
}

absl::Status VersionFile::ReadBytes(int64_t offset,
                                    absl::Span<char> out) const {
  const absl::StatusOr<int64_t> count = file_->ReadAt(offset, out);
  if (!count.ok()) {
    disk_has_failed_ = true;
    return count.status();
  }
  if (*count != static_cast<int64_t>(out.size())) {
    return EndsEarly(path(), offset, *count, out.size());
  }
  return absl::OkStatus();
}

absl::Status VersionFile::WriteHeader(const VersionIdentity& identity) {
  records::VersionHeader header;
  header.set_run_id(identity.run_id);
  header.set_shard(identity.shard);
  header.set_fragment(range_.fragment());
  header.set_version(identity.version);
  header.set_commit_seq(identity.commit_seq);
  *header.mutable_digest() = identity.digest.ToProto();
  if (identity.replica_digest != Digest128()) {
    *header.mutable_replica_digest() = identity.replica_digest.ToProto();
  }
  header.set_replica_left_out(replica_left_out());
  header.set_block_begin(range_.blocks().begin);
  header.set_block_end(range_.blocks().end);
  header.set_element_count(range_.element_count());
  header.set_state_count(state_count_);
  header.set_table_crc32c(codec::Crc32c(AsBytes(table_)));
  ASSIGN_OR_RETURN(const std::string page, EncodeHeaderPage(kMagic, header));
  RETURN_IF_ERROR(file_->WriteAt(TableOffset(), AsBytes(table_)));
  RETURN_IF_ERROR(file_->WriteAt(0, page));
  identity_ = identity;
  MutexLock lock(&mutex_);
  identity_.replica_left_out = replica_left_out_;
  written_back_ = true;
  for (ArrayPlace& place : places_) place.in_file = true;
  return absl::OkStatus();
}

absl::Status VersionFile::Seal(const VersionIdentity& identity) {
  RETURN_IF_ERROR(WriteImages());
  RETURN_IF_ERROR(WriteHeader(identity));
  absl::Status synced = file_->Sync();
  MutexLock lock(&mutex_);
  sealed_ = synced.ok();
  written_back_ = synced.ok();
  for (int array = 0; !synced.ok() && array <= state_count_; ++array) {
    // The disk may have lost an array that is not in memory, and a later sync
    // would not report that.
    const bool left_out = array == state_count_ && replica_left_out_;
    if (places_[array].image == nullptr && !left_out) {
      return absl::DataLossError(synced.message());
    }
  }
  return synced;
}

}  // namespace atl::server
