#include "worker/island/group/island_group.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status/not_finite.h"
#include "base/status/refusal.h"
#include "base/status/status_macros.h"
#include "worker/collective/call.h"
#include "worker/core/data_awaited.h"

namespace atl::worker {
namespace {

using collective::Call;
using collective::DataType;

// The first call of a message: its length and, nearly always, all of it.
constexpr size_t kFrameBytes = 512;
constexpr size_t kInlineBytes = kFrameBytes - sizeof(uint32_t);
// Longer messages are invalid.
constexpr uint32_t kMessageBytesMax = 256 << 20;

using Frame = std::array<char, kFrameBytes>;

Frame MakeFrame(absl::string_view message) {
  Frame frame = {};
  const auto size = static_cast<uint32_t>(message.size());
  std::memcpy(frame.data(), &size, sizeof(size));
  std::memcpy(frame.data() + sizeof(size), message.data(),
              std::min(message.size(), kInlineBytes));
  return frame;
}

uint32_t SizeIn(const char* frame) {
  uint32_t size = 0;
  std::memcpy(&size, frame, sizeof(size));
  return size;
}

// Added to the code of DataAwaited, and of NotFinite.
constexpr int kAwaitsData = 0x40;
constexpr int kIsNotFinite = 0x20;

// The kind of another process's error that a loop must know.
int KindOf(const absl::Status& status) {
  if (IsDataAwaited(status)) return kAwaitsData;
  return FindNotFinite(status).has_value() ? kIsNotFinite : 0;
}

absl::Status MakeStatus(int kind, absl::StatusCode code,
                        absl::string_view message) {
  if (kind == kAwaitsData) return DataAwaited(message);
  const absl::Status status(code, message);
  return kind == kIsNotFinite ? NotFinite(NotFiniteOf::kOther, status) : status;
}

// Stop level, code, message.
std::string EncodeVerdict(int stop, const absl::Status& status) {
  std::string text;
  text += static_cast<char>(stop);
  text += static_cast<char>(static_cast<int>(status.code()) | KindOf(status));
  absl::StrAppend(&text, status.message());
  return text;
}

absl::Status ParseVerdict(absl::string_view verdict) {
  if (verdict.size() < 2) return absl::InternalError("a verdict is too short");
  const int kind = verdict[1] & (kAwaitsData | kIsNotFinite);
  return MakeStatus(kind, static_cast<absl::StatusCode>(verdict[1] & ~kind),
                    verdict.substr(2));
}

// Gives way to another error.
bool IsWeak(const absl::Status& status) {
  return absl::IsCancelled(status) || IsDataAwaited(status);
}

}  // namespace

bool IsProcessLost(const absl::Status& status) {
  return HasReason(status, kProcessLost);
}

IslandGroup::IslandGroup(Lanes lanes)
    : index_(lanes[0]->rank()),
      count_(lanes[0]->size()),
      lanes_(std::move(lanes)) {}

absl::Status IslandGroup::Send(Lane lane, absl::string_view message) {
  Frame frame = MakeFrame(message);
  absl::Status sent = At(lane).Run(
      Call::Broadcast(DataType::kBytes, frame.data(), kFrameBytes, 0));
  if (sent.ok() && message.size() > kInlineBytes) {
    std::string rest(message.substr(kInlineBytes));
    sent = At(lane).Run(Call::Broadcast(DataType::kBytes, rest.data(),
                                        static_cast<int64_t>(rest.size()), 0));
  }
  return sent.ok() ? sent : Lost(sent);
}

absl::StatusOr<std::string> IslandGroup::Receive(Lane lane) {
  Frame frame;
  absl::Status got = At(lane).Run(
      Call::Broadcast(DataType::kBytes, frame.data(), kFrameBytes, 0));
  if (!got.ok()) return Lost(got);
  const size_t size = SizeIn(frame.data());
  if (size > kMessageBytesMax) {
    return Lost(absl::InternalError("process 0 sent an invalid message"));
  }
  std::string message(size, '\0');
  std::memcpy(message.data(), frame.data() + sizeof(uint32_t),
              std::min(size, kInlineBytes));
  if (size > kInlineBytes) {
    got = At(lane).Run(
        Call::Broadcast(DataType::kBytes, message.data() + kInlineBytes,
                        static_cast<int64_t>(size - kInlineBytes), 0));
    if (!got.ok()) return Lost(got);
  }
  return message;
}

absl::StatusOr<std::vector<std::string>> IslandGroup::Exchange(
    Lane lane, absl::string_view message) {
  const Frame mine = MakeFrame(message);
  std::vector<char> frames(kFrameBytes * count_);
  absl::Status got = At(lane).Run(Call::AllGather(DataType::kBytes, mine.data(),
                                                  frames.data(), kFrameBytes));
  if (!got.ok()) return Lost(got);
  size_t rest_max = 0;
  std::vector<std::string> messages;
  for (int i = 0; i < count_; ++i) {
    const char* const frame = frames.data() + i * kFrameBytes;
    const size_t size = SizeIn(frame);
    if (size > kMessageBytesMax) {
      return Lost(absl::InternalError("a process sent an invalid message"));
    }
    messages.emplace_back(frame + sizeof(uint32_t),
                          std::min(size, kInlineBytes));
    messages.back().resize(size);
    rest_max = std::max(rest_max, size - std::min(size, kInlineBytes));
  }
  if (rest_max == 0) return messages;
  std::vector<char> rest(rest_max), rests(rest_max * count_);
  if (message.size() > kInlineBytes) {
    const absl::string_view tail = message.substr(kInlineBytes);
    std::memcpy(rest.data(), tail.data(), tail.size());
  }
  got =
      At(lane).Run(Call::AllGather(DataType::kBytes, rest.data(), rests.data(),
                                   static_cast<int64_t>(rest_max)));
  if (!got.ok()) return Lost(got);
  for (int i = 0; i < count_; ++i) {
    if (messages[i].size() <= kInlineBytes) continue;
    std::memcpy(messages[i].data() + kInlineBytes, rests.data() + i * rest_max,
                messages[i].size() - kInlineBytes);
  }
  return messages;
}

absl::Status IslandGroup::Agree(Lane lane, const absl::Status& status) {
  ASSIGN_OR_RETURN(const std::vector<std::string> verdicts,
                   Exchange(lane, EncodeVerdict(own_stop_, status)));
  int stop = stop_;
  int first = -1;
  for (int i = 0; i < count_; ++i) {
    const absl::Status one = ParseVerdict(verdicts[i]);
    stop = std::max<int>(stop, verdicts[i].empty() ? 0 : verdicts[i][0]);
    if (one.ok()) continue;
    if (first < 0 || (IsWeak(ParseVerdict(verdicts[first])) && !IsWeak(one))) {
      first = i;
    }
  }
  stop_ = std::max<int>(stop, stop_);
  if (first < 0) return absl::OkStatus();
  if (first == index_) return status;
  const absl::Status theirs = ParseVerdict(verdicts[first]);
  return MakeStatus(
      KindOf(theirs), theirs.code(),
      absl::StrCat("process ", first, " of the island: ", theirs.message()));
}

void IslandGroup::RequestStop(int level) {
  int before = own_stop_;
  while (before < level && !own_stop_.compare_exchange_weak(before, level)) {
  }
}

absl::Status IslandGroup::lost() const {
  MutexLock lock(&mutex_);
  return lost_;
}

void IslandGroup::Abort(absl::string_view reason) { lanes_[0]->Abort(reason); }

absl::Status IslandGroup::Lost(const absl::Status& status) {
  {
    MutexLock lock(&mutex_);
    if (!lost_.ok()) return lost_;
    lost_ = Refuse(absl::StatusCode::kUnavailable, kProcessLost,
                   absl::StrCat("the island lost a process: ",
                                status.message()));
  }
  // Wakes the threads that wait in other lanes.
  Abort(status.message());
  return lost();
}

}  // namespace atl::worker
