// Unix sockets of type SEQPACKET: whole messages, with a file descriptor if one
// is given. Thread-compatible.

#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/io/unique_fd.h"

namespace atl::net {

inline constexpr size_t kPacketBytesMax = 64 << 10;

class PacketSocket {
 public:
  PacketSocket() = default;
  explicit PacketSocket(UniqueFd fd) : fd_(std::move(fd)) {}

  // Connects to a listener. NOT_FOUND: the socket does not exist. UNAVAILABLE:
  // no process listens on it. Other errors as PacketListener::Listen.
  static absl::StatusOr<PacketSocket> Connect(const std::string& path);

  bool connected() const { return fd_.valid(); }
  int fd() const { return fd_.get(); }
  void Close() { UniqueFd(std::move(fd_)); }

  // Sends one packet, and a copy of descriptor `fd` with it unless it is -1.
  // UNAVAILABLE: the peer is gone, or reads nothing for `timeout`.
  // INVALID_ARGUMENT: `text` is longer than kPacketBytesMax.
  absl::Status Send(absl::string_view text, int fd, absl::Duration timeout);
  // Receives one packet that is there (WaitForSocket). Closes descriptors that
  // come with it. UNAVAILABLE: the peer is gone. INVALID_ARGUMENT: the packet
  // is too long.
  absl::StatusOr<std::string> Receive();

 private:
  UniqueFd fd_;
};

// Listens at a path. Only processes of this user and of root may connect.
class PacketListener {
 public:
  // Replaces a socket of a process that is gone. ALREADY_EXISTS: another
  // program uses it, or the path is no socket. INVALID_ARGUMENT: the path is
  // long, and so is its last name. FAILED_PRECONDITION: its directory is
  // another user's. Others: of the file system.
  static absl::StatusOr<std::unique_ptr<PacketListener>> Listen(
      const std::string& path);
  ~PacketListener();

  int fd() const { return fd_.get(); }
  const std::string& path() const { return path_; }
  // Accepts a connection that is there. PERMISSION_DENIED: of another user.
  absl::StatusOr<PacketSocket> Accept();

 private:
  PacketListener(UniqueFd fd, std::string path, dev_t device, ino_t inode)
      : fd_(std::move(fd)),
        path_(std::move(path)),
        device_(device),
        inode_(inode) {}

  UniqueFd fd_;
  const std::string path_;
  const dev_t device_;  // Device and inode of the socket's file.
  const ino_t inode_;
};

}  // namespace atl::net
