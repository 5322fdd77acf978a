#include "cli/volunteer/local_socket.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/codec/sha256.h"
#include "base/io/posix_file_system.h"
#include "base/io/private_directory.h"
#include "base/net/socket.h"
#include "base/obs/log.h"
#include "base/status/annotate.h"
#include "base/status/status_macros.h"
#include "base/time/clock.h"
#include "cli/output/error.h"

namespace atl::cli {
namespace {

// The longest waits for a caller's request, and for an answer.
constexpr absl::Duration kRequestMax = absl::Seconds(1);
constexpr absl::Duration kAnswerMax = absl::Seconds(5);
constexpr size_t kNameCountMax = 1000;

absl::StatusOr<UniqueFd> OpenDirectory(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid()) return ErrnoToStatus(errno, path);
  return fd;
}

// A short name of the file in an open directory: a socket's path has at most
// 107 bytes.
std::string ShortPath(const UniqueFd& directory, const std::string& name) {
  return absl::StrCat("/proc/self/fd/", directory.get(), "/", name);
}

Json ToAnswer(const absl::StatusOr<Json>& result) {
  if (result.ok()) return {{"ok", *result}};
  return {{"error",
           {{"code", static_cast<int>(result.status().code())},
            {"message", std::string(result.status().message())}}}};
}

absl::StatusOr<Json> FromAnswer(const Json& answer) {
  if (answer.is_object() && answer.contains("ok")) return answer["ok"];
  if (answer.is_object() && answer.contains("error") &&
      answer["error"].is_object()) {
    const Json& error = answer["error"];
    const int code = error.value("code", 0);
    if (code > 0 && code <= 16 && error.contains("message") &&
        error["message"].is_string()) {
      return absl::Status(static_cast<absl::StatusCode>(code),
                          error["message"].get<std::string>());
    }
  }
  return absl::InternalError("the running join gave an unknown answer");
}

}  // namespace

std::string LocalDirectory(absl::string_view state_directory) {
  return absl::StrCat(state_directory, "/local");
}

// A hash, because a socket's path is short and three names are long.
std::string LocalName(absl::string_view directory,
                      absl::string_view run_id, absl::string_view island_id) {
  const std::string hash = codec::ToHex(codec::ComputeSha256(
      absl::StrCat(directory, "\n", run_id, "\n", island_id)));
  return absl::StrCat(hash.substr(0, 32), ".sock");
}

absl::StatusOr<std::unique_ptr<LocalServer>> LocalServer::Start(
    const std::string& directory, const std::string& name,
    LocalHandler handler) {
  RETURN_IF_ERROR(MakePrivateDirectory(directory));
  ASSIGN_OR_RETURN(UniqueFd opened, OpenDirectory(directory));
  struct stat found = {};
  if (::fstat(opened.get(), &found) != 0) {
    return ErrnoToStatus(errno, directory);
  }
  if (found.st_uid != ::geteuid() || (found.st_mode & 077) != 0) {
    return WithHint(absl::FailedPreconditionError(absl::StrCat(
                        directory, " must be private to this user")),
                    absl::StrCat("Run: chmod 700 ", directory));
  }
  ASSIGN_OR_RETURN(UniqueFd waker, MakeWaker());
  auto server = std::unique_ptr<LocalServer>(
      new LocalServer(std::move(opened), std::move(waker), std::move(handler)));
  ASSIGN_OR_RETURN(server->listener_, net::PacketListener::Listen(
                                          ShortPath(server->directory_, name)));
  server->thread_ = std::thread([made = server.get()] { made->Run(); });
  return server;
}

LocalServer::~LocalServer() {
  SetWaker(waker_.get());
  if (thread_.joinable()) thread_.join();
}

absl::Status LocalServer::WaitFor(int fd, absl::Duration timeout) const {
  return net::WaitForSocket(fd, POLLIN,
                            {SystemClock().Now() + timeout, waker_.get()});
}

void LocalServer::Run() {
  while (true) {
    const absl::Status waited =
        WaitFor(listener_->fd(), absl::InfiniteDuration());
    if (absl::IsCancelled(waited)) return;
    if (!waited.ok()) continue;
    absl::StatusOr<net::PacketSocket> caller = listener_->Accept();
    if (caller.ok()) {
      Answer(*std::move(caller));
    } else {
      LOG(WARNING) << "a call of atoll local: " << caller.status().message();
      // No descriptor may be left: this does not spin.
      if (!absl::IsPermissionDenied(caller.status())) {
        WaitFor(/*fd=*/-1, kRequestMax).IgnoreError();
      }
    }
  }
}

void LocalServer::Answer(net::PacketSocket caller) const {
  if (!WaitFor(caller.fd(), kRequestMax).ok()) return;
  const absl::StatusOr<std::string> text = caller.Receive();
  if (!text.ok()) return;
  const Json request = Json::parse(*text, nullptr, /*allow_exceptions=*/false);
  const absl::StatusOr<Json> result =
      request.is_object()
          ? handler_(request)
          : absl::StatusOr<Json>(absl::InvalidArgumentError("no JSON object"));
  // A caller that has gone needs no answer.
  caller
      .Send(
          ToAnswer(result).dump(-1, ' ', false, Json::error_handler_t::replace),
          /*fd=*/-1, kRequestMax)
      .IgnoreError();
}

absl::StatusOr<Json> CallLocal(const std::string& directory,
                               const std::string& name, const Json& request) {
  ASSIGN_OR_RETURN(const UniqueFd opened, OpenDirectory(directory));
  absl::StatusOr<net::PacketSocket> socket =
      net::PacketSocket::Connect(ShortPath(opened, name));
  if (absl::IsNotFound(socket.status()) ||
      absl::IsUnavailable(socket.status())) {
    return absl::NotFoundError("no join runs here");
  }
  RETURN_IF_ERROR(socket.status());
  RETURN_IF_ERROR(socket->Send(request.dump(), /*fd=*/-1, kAnswerMax));
  if (!net::WaitForSocket(socket->fd(), POLLIN,
                          {SystemClock().Now() + kAnswerMax})
           .ok()) {
    return absl::DeadlineExceededError(
        "the running join does not answer; is it stopped?");
  }
  const absl::StatusOr<std::string> text = socket->Receive();
  if (!text.ok()) return absl::NotFoundError("the join has just ended");
  return FromAnswer(Json::parse(*text, nullptr, /*allow_exceptions=*/false));
}

std::vector<std::string> ListLocal(const std::string& directory) {
  absl::StatusOr<std::vector<std::string>> names =
      PosixFileSystem().List(directory);
  if (!names.ok()) return {};
  std::sort(names->begin(), names->end());
  if (names->size() > kNameCountMax) names->resize(kNameCountMax);
  return *std::move(names);
}

}  // namespace atl::cli
