#include "worker/sdk/trainer_host.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/layout/weight_unit.h"
#include "base/net/socket.h"
#include "base/obs/log.h"
#include "base/status/annotate.h"
#include "base/status/cut_utf8.h"
#include "base/status/refusal.h"
#include "base/status/status_macros.h"
#include "base/time/clock.h"
#include "google/protobuf/util/json_util.h"
#include "worker/island/group/island_group.h"

namespace atl::worker {
namespace {

using Kind = v1::TrainerMessage::KindCase;

// Longest wait for a new trainer's messages, and for a trainer to read one.
constexpr absl::Duration kGreetMax = absl::Seconds(30);
constexpr absl::Duration kSendMax = absl::Seconds(30);
// How often a wait for a trainer looks at the stop request.
constexpr absl::Duration kLook = absl::Milliseconds(200);
// Most bytes of tensors in one `layout`; other fields take the packet's rest.
constexpr size_t kTensorBytesMax = 48 << 10;
// Most notices that wait, and the longest, in bytes.
constexpr size_t kNoticesMax = 16;
constexpr size_t kNoticeBytesMax = 512;

absl::StatusOr<std::string> ToText(const v1::TrainerMessage& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  std::string text;
  const auto status =
      google::protobuf::util::MessageToJsonString(message, &text, options);
  if (!status.ok()) return absl::InternalError("a message is no JSON");
  return text;
}

// A packet that cannot be read, or comes out of order.
absl::Status Unreadable(absl::string_view message) {
  return Refuse(absl::StatusCode::kInvalidArgument, "UNREADABLE_MESSAGE",
                message);
}

absl::StatusOr<v1::TrainerMessage> ToMessage(const std::string& text) {
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = true;
  v1::TrainerMessage message;
  const auto status =
      google::protobuf::util::JsonStringToMessage(text, &message, options);
  if (!status.ok() || message.kind_case() == Kind::KIND_NOT_SET) {
    return Unreadable(
        absl::StrCat("the trainer sent no message of trainer.proto: ",
                     absl::CHexEscape(text.substr(0, 200))));
  }
  return message;
}

std::string KindName(Kind kind) {
  const auto* const field =
      v1::TrainerMessage::descriptor()->FindFieldByNumber(kind);
  return field == nullptr ? "nothing" : std::string(field->name());
}

// The code of a canonical name; UNKNOWN for any other text.
absl::StatusCode ToCode(absl::string_view name) {
  for (int code = 1; code <= 16; ++code) {
    const auto found = static_cast<absl::StatusCode>(code);
    if (absl::StatusCodeToString(found) == name) return found;
  }
  return absl::StatusCode::kUnknown;
}

// The unit that a trainer's hello names. UNSPECIFIED: it counts any.
absl::StatusOr<v1::WeightUnit> ToUnit(const std::string& name) {
  if (name.empty()) return v1::WEIGHT_UNIT_TOKENS;
  if (name == "any") return v1::WEIGHT_UNIT_UNSPECIFIED;
  for (const v1::WeightUnit unit :
       {v1::WEIGHT_UNIT_TOKENS, v1::WEIGHT_UNIT_SAMPLES,
        v1::WEIGHT_UNIT_STEPS}) {
    if (name == WeightUnitName(unit)) return unit;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "the trainer's weight_unit is \"", absl::CHexEscape(name.substr(0, 80)),
      "\": say \"tokens\", \"samples\", \"steps\" or \"any\""));
}

absl::Status ToStatus(const v1::TrainerError& error) {
  absl::Status status(
      ToCode(error.code()),
      absl::StrCat("the trainer: ", error.message(),
                   error.hint().empty() ? "" : "; ", error.hint()));
  if (error.reason().empty()) return status;
  return WithReason(status, {error.reason(), {}});
}

absl::Status CheckVersion(int32_t version) {
  if (version == kTrainerProtocolVersion) return absl::OkStatus();
  return WithReason(
      absl::UnimplementedError(absl::StrCat(
          "the trainer speaks version ", version,
          " of trainer.proto, this island version ", kTrainerProtocolVersion,
          ": use an SDK and a program of one release")),
      {"TRAINER_VERSION", {}});
}

}  // namespace

absl::StatusOr<SharedRegion> SharedRegion::Create(int64_t element_count) {
  UniqueFd fd(::memfd_create("atoll", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return ErrnoToStatus(errno, "memfd_create");
  const auto size = static_cast<size_t>(element_count) * sizeof(float);
  if (::ftruncate(fd.get(), static_cast<off_t>(size)) != 0 ||
      ::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
    return ErrnoToStatus(errno, "shared memory for the parameters");
  }
  void* const memory =
      ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (memory == MAP_FAILED) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "no ", size, " bytes of shared memory for a fragment's parameters"));
  }
  return SharedRegion(std::move(fd),
                      absl::MakeSpan(static_cast<float*>(memory),
                                     static_cast<size_t>(element_count)));
}

SharedRegion::SharedRegion(SharedRegion&& other) noexcept
    : fd_(std::move(other.fd_)),
      values_(std::exchange(other.values_, absl::Span<float>())) {}

SharedRegion::~SharedRegion() {
  if (!values_.empty()) {
    ::munmap(values_.data(), values_.size() * sizeof(float));
  }
}

absl::StatusOr<std::unique_ptr<TrainerHost>> TrainerHost::Start(
    const std::string& path) {
  ASSIGN_OR_RETURN(std::unique_ptr<net::PacketListener> listener,
                   net::PacketListener::Listen(path));
  ASSIGN_OR_RETURN(UniqueFd waker, MakeWaker());
  return std::unique_ptr<TrainerHost>(
      new TrainerHost(std::move(listener), std::move(waker)));
}

absl::Status TrainerHost::MakeRegions(const v1::TrainerHello& hello,
                                      const RunLayout& layout) {
  if (run_uid_ == hello.run_uid() && !regions_.empty()) return absl::OkStatus();
  // A trainer of another run has other memory.
  socket_.Close();
  regions_.clear();
  for (int32_t f = 0; f < layout.fragment_count(); ++f) {
    ASSIGN_OR_RETURN(SharedRegion region,
                     SharedRegion::Create(layout.fragment_element_count(f)));
    regions_.push_back(std::move(region));
  }
  run_uid_ = hello.run_uid();
  return absl::OkStatus();
}

absl::Status TrainerHost::Connect(const v1::TrainerHello& hello,
                                  const v1::Layout& tensors,
                                  const RunLayout& layout, const Join& join,
                                  std::stop_token stop, absl::Time give_up) {
  RETURN_IF_ERROR(MakeRegions(hello, layout));
  if (!socket_.connected()) {
    LOG(INFO) << "waits for a trainer at " << listener_->path();
  }
  while (!socket_.connected()) {
    RETURN_IF_ERROR(Accept(stop, give_up));
    bool has_place = false;
    const absl::Status greeted =
        Greet(hello, tensors, layout, join, stop, has_place);
    if (greeted.ok()) break;
    if (IsProcessLost(greeted)) return greeted;
    // As the loss of a trainer that trains.
    if (has_place && absl::IsUnavailable(greeted)) return Lose(greeted);
    LOG(WARNING) << "a trainer is refused: " << greeted;
    v1::TrainerMessage refusal;
    refusal.mutable_error()->set_code(absl::StatusCodeToString(greeted.code()));
    if (const auto reason = GetReason(greeted); reason.has_value()) {
      refusal.mutable_error()->set_reason(reason->reason);
    }
    refusal.mutable_error()->set_message(std::string(greeted.message()));
    Send(refusal).IgnoreError();
    socket_.Close();
    // The run counts its island, and must not wait for another trainer.
    if (has_place) return greeted;
  }
  MutexLock lock(&mutex_);
  lost_ = absl::OkStatus();
  return absl::OkStatus();
}

v1::TrainerHello TrainerHost::TakeStandings() {
  v1::TrainerHello said = said_;
  said_.clear_has_state();
  said_.clear_standings();
  return said;
}

absl::Status TrainerHost::Accept(std::stop_token stop, absl::Time give_up) {
  while (true) {
    if (stop.stop_requested()) {
      return absl::CancelledError("stopped before a trainer connected");
    }
    if (SystemClock().Now() >= give_up) {
      return absl::DeadlineExceededError(
          absl::StrCat("no trainer has come to ", listener_->path()));
    }
    if (!net::WaitForSocket(listener_->fd(), POLLIN,
                            {SystemClock().Now() + kLook, waker_.get()})
             .ok()) {
      ClearWaker(waker_.get());
      continue;
    }
    absl::StatusOr<net::PacketSocket> socket = listener_->Accept();
    if (socket.ok()) {
      socket_ = *std::move(socket);
      return absl::OkStatus();
    }
    LOG(WARNING) << "a trainer is refused: " << socket.status();
  }
}

absl::StatusOr<v1::TrainerMessage> TrainerHost::GivePlace(
    const v1::TrainerHello& hello, const v1::TrainerMessage& asked,
    const Join& join, std::stop_token stop, bool& has_place) {
  v1::TrainerMessage answer;
  answer.set_seq(asked.seq());
  v1::TrainerJoin& place = *answer.mutable_join();
  place.set_version(kTrainerProtocolVersion);
  place.set_run_uid(hello.run_uid());
  place.set_island_id(hello.island_id());
  RETURN_IF_ERROR(join(place));
  has_place = true;
  RETURN_IF_ERROR(Send(answer));
  LOG(INFO) << "a trainer has the data shard " << place.data_shard() << " of "
            << place.data_shard_count() << ", and makes its model";
  while (!stop.stop_requested()) {
    const absl::Status waited = net::WaitForSocket(
        socket_.fd(), POLLIN, {SystemClock().Now() + kLook, waker_.get()});
    if (!waited.ok()) {
      if (absl::IsCancelled(waited)) ClearWaker(waker_.get());
      continue;
    }
    return Receive(kGreetMax, /*is_train=*/false);
  }
  return absl::CancelledError("stopped before the trainer had its model");
}

absl::Status TrainerHost::Greet(const v1::TrainerHello& hello,
                                const v1::Layout& tensors,
                                const RunLayout& layout, const Join& join,
                                std::stop_token stop, bool& has_place) {
  ASSIGN_OR_RETURN(v1::TrainerMessage first,
                   Receive(kGreetMax, /*is_train=*/false));
  if (first.has_join()) {
    RETURN_IF_ERROR(CheckVersion(first.join().version()));
    ASSIGN_OR_RETURN(first, GivePlace(hello, first, join, stop, has_place));
  }
  if (!first.has_hello()) {
    return Unreadable(absl::StrCat("a trainer's first message is hello, not ",
                                   KindName(first.kind_case())));
  }
  RETURN_IF_ERROR(CheckVersion(first.hello().version()));
  ASSIGN_OR_RETURN(weight_unit_, ToUnit(first.hello().weight_unit()));
  said_ = first.hello();
  v1::TrainerMessage answer;
  answer.set_seq(first.seq());
  *answer.mutable_hello() = hello;
  answer.mutable_hello()->set_version(kTrainerProtocolVersion);
  answer.mutable_hello()->set_fragment_count(layout.fragment_count());
  RETURN_IF_ERROR(Send(answer));
  seq_ = 0;
  for (int32_t f = 0; f < layout.fragment_count(); ++f) {
    RETURN_IF_ERROR(SendLayout(f, tensors, layout));
  }
  LOG(INFO) << "a trainer is connected";
  return absl::OkStatus();
}

absl::Status TrainerHost::SendLayout(int32_t fragment,
                                     const v1::Layout& tensors,
                                     const RunLayout& layout) {
  v1::TrainerMessage message;
  v1::TrainerLayout& part = *message.mutable_layout();
  int fd = regions_[fragment].fd();
  size_t bytes = 0;
  const auto send = [&](bool last) -> absl::Status {
    part.set_fragment(fragment);
    part.set_element_count(layout.fragment_element_count(fragment));
    part.set_last(last);
    message.set_seq(++seq_);
    RETURN_IF_ERROR(Send(message, std::exchange(fd, -1)));
    ASSIGN_OR_RETURN(const v1::TrainerMessage answer,
                     Receive(kGreetMax, /*is_train=*/false));
    if (answer.has_error()) return ToStatus(answer.error());
    if (!answer.has_layout() || answer.seq() != seq_) {
      return Unreadable(absl::StrCat(
          "the trainer answers ", KindName(answer.kind_case()), " to layout"));
    }
    part.Clear();
    bytes = 0;
    return absl::OkStatus();
  };
  for (const int32_t i : layout.fragment_tensors(fragment)) {
    const v1::TensorSpec& tensor = tensors.tensors(i);
    v1::TrainerTensor described;
    described.set_name(tensor.name());
    *described.mutable_shape() = tensor.shape();
    described.set_element_offset(layout.tensors()[i].fragment_offset);
    // At most 24 bytes a number; names need no escapes.
    const size_t size = tensor.name().size() + 24 * tensor.shape_size() + 100;
    if (bytes + size > kTensorBytesMax && bytes > 0) {
      RETURN_IF_ERROR(send(/*last=*/false));
    }
    bytes += size;
    *part.add_tensors() = std::move(described);
  }
  return send(/*last=*/true);
}

absl::Status TrainerHost::Send(const v1::TrainerMessage& message, int fd) {
  ASSIGN_OR_RETURN(const std::string text, ToText(message));
  return Annotate(socket_.Send(text, fd, kSendMax), "the trainer");
}

absl::StatusOr<v1::TrainerMessage> TrainerHost::Receive(absl::Duration timeout,
                                                        bool is_train) {
  bool told = false;
  const absl::Time deadline = SystemClock().Now() + timeout;
  while (true) {
    bool interrupt = false, at_once = false;
    {
      MutexLock lock(&mutex_);
      interrupt = interrupt_;
      at_once = at_once_;
    }
    if (at_once) return absl::CancelledError("stopped at once");
    if (is_train && interrupt && !told) {
      told = true;
      v1::TrainerMessage message;
      message.mutable_interrupt();
      RETURN_IF_ERROR(Send(message));
    }
    const absl::Status waited =
        net::WaitForSocket(socket_.fd(), POLLIN, {deadline, waker_.get()});
    if (absl::IsCancelled(waited)) {
      ClearWaker(waker_.get());
      continue;
    }
    if (!waited.ok()) {
      return absl::UnavailableError("the trainer does not answer");
    }
    const absl::StatusOr<std::string> text = socket_.Receive();
    RETURN_IF_ERROR(Annotate(text.status(), "the trainer"));
    {
      MutexLock lock(&mutex_);
      heard_ = absl::Now();
    }
    ASSIGN_OR_RETURN(v1::TrainerMessage message, ToMessage(*text));
    if (message.has_progress()) continue;
    return message;
  }
}

absl::Status TrainerHost::Lose(const absl::Status& why) {
  socket_.Close();
  const absl::Status lost =
      WithReason(absl::UnavailableError(why.message()), {kProcessLost, {}});
  MutexLock lock(&mutex_);
  lost_ = lost;
  return lost;
}

absl::StatusOr<v1::TrainerMessage> TrainerHost::Ask(
    v1::TrainerMessage request) {
  if (const absl::Status before = lost(); !before.ok()) return before;
  {
    MutexLock lock(&mutex_);
    asking_ = true;
    heard_ = absl::Now();
  }
  const absl::Cleanup asked = [this] {
    MutexLock lock(&mutex_);
    asking_ = false;
  };
  request.set_seq(++seq_);
  if (request.has_train()) {
    for (std::string& notice : TakeNotices()) {
      request.mutable_train()->add_notices(std::move(notice));
    }
  }
  const absl::Status sent = Send(request);
  if (!sent.ok()) return Lose(sent);
  absl::StatusOr<v1::TrainerMessage> answer =
      Receive(absl::InfiniteDuration(), request.has_train());
  if (request.has_train()) {
    MutexLock lock(&mutex_);
    interrupt_ = false;
  }
  if (absl::IsCancelled(answer.status())) return answer.status();
  if (!answer.ok()) return Lose(answer.status());
  if (answer->has_error()) {
    const absl::Status error = ToStatus(answer->error());
    // It is about to end, and may come back.
    return absl::IsUnavailable(error) ? Lose(error) : error;
  }
  if (answer->kind_case() != request.kind_case() ||
      answer->seq() != request.seq()) {
    return Lose(absl::InvalidArgumentError(
        absl::StrCat("the trainer answers ", KindName(answer->kind_case()), " ",
                     answer->seq(), " to ", KindName(request.kind_case()), " ",
                     request.seq())));
  }
  return answer;
}

void TrainerHost::Interrupt(bool at_once) {
  {
    MutexLock lock(&mutex_);
    interrupt_ = true;
    if (at_once) at_once_ = true;
  }
  SetWaker(waker_.get());
}

void TrainerHost::End(const absl::Status& status, int64_t version) {
  if (!socket_.connected()) return;
  v1::TrainerMessage message;
  message.mutable_end()->set_complete(status.ok());
  message.mutable_end()->set_version(version);
  message.mutable_end()->set_message(
      status.ok() ? "the run is complete" : std::string(status.message()));
  if (!status.ok()) {
    message.mutable_end()->set_code(absl::StatusCodeToString(status.code()));
    message.mutable_end()->set_reason(
        GetReason(status).value_or(ErrorReason()).reason);
  }
  for (std::string& notice : TakeNotices()) {
    message.mutable_end()->add_notices(std::move(notice));
  }
  Send(message).IgnoreError();
  socket_.Close();
}

void TrainerHost::Notify(const std::string& notice) {
  MutexLock lock(&mutex_);
  notices_.emplace_back(CutUtf8(notice, kNoticeBytesMax));
  if (notices_.size() > kNoticesMax) notices_.pop_front();
}

std::deque<std::string> TrainerHost::TakeNotices() {
  MutexLock lock(&mutex_);
  return std::exchange(notices_, {});
}

absl::Duration TrainerHost::silence() const {
  MutexLock lock(&mutex_);
  return asking_ ? absl::Now() - heard_ : absl::ZeroDuration();
}

absl::Status TrainerHost::lost() const {
  MutexLock lock(&mutex_);
  return lost_;
}

}  // namespace atl::worker
