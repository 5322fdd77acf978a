#include "server/machine_health.h"

#include <sys/statvfs.h>

#include <algorithm>
#include <system_error>
#include <thread>
#include <utility>

#include "base/time/clock.h"
#include "base/time/proto_time.h"

namespace atl::server {
namespace {

constexpr size_t kSyncsKept = 64;
constexpr absl::Duration kReadPeriod = absl::Seconds(10);

}  // namespace

MachineHealth::MachineHealth(std::string directory)
    : directory_(std::move(directory)), disk_(std::make_shared<Disk>()) {}

void MachineHealth::NoteSync(absl::Duration duration) {
  MutexLock lock(&mutex_);
  if (syncs_.size() < kSyncsKept) {
    syncs_.push_back(duration);
    return;
  }
  syncs_[next_sync_] = duration;
  next_sync_ = (next_sync_ + 1) % kSyncsKept;
}

v1::ServerHealth MachineHealth::Get(absl::Time now) {
  StartRead();
  v1::ServerHealth health;
  *health.mutable_time() = ToProto(now);
  {
    MutexLock lock(&disk_->mutex);
    health.set_disk_free_bytes(disk_->free_bytes);
    health.set_disk_total_bytes(disk_->total_bytes);
  }
  std::vector<absl::Duration> syncs;
  {
    MutexLock lock(&mutex_);
    syncs = syncs_;
  }
  if (!syncs.empty()) {
    const auto median =
        syncs.begin() + static_cast<std::ptrdiff_t>(syncs.size() / 2);
    std::nth_element(syncs.begin(), median, syncs.end());
    *health.mutable_sync_duration() = ToProto(*median);
  }
  return health;
}

void MachineHealth::StartRead() {
  MutexLock lock(&disk_->mutex);
  const absl::Time now = SystemClock().Now();
  if (disk_->reading || now < disk_->start + kReadPeriod) return;
  // A thread that waits for a disk cannot be joined in bounded time.
  try {
    std::thread([disk = disk_, directory = directory_] {
      struct statvfs info = {};
      const bool read = statvfs(directory.c_str(), &info) == 0;
      MutexLock lock(&disk->mutex);
      disk->reading = false;
      if (!read) return;
      const auto block_bytes = static_cast<int64_t>(info.f_frsize);
      disk->free_bytes = static_cast<int64_t>(info.f_bavail) * block_bytes;
      disk->total_bytes = static_cast<int64_t>(info.f_blocks) * block_bytes;
    }).detach();
    disk_->reading = true;
    disk_->start = now;
    // style-ok(call): std::thread throws if no thread can be had.
  } catch (const std::system_error&) {
  }
}

}  // namespace atl::server
