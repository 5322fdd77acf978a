#include "base/net/packet_socket.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/io/files.h"
#include "base/io/private_directory.h"
#include "base/net/socket.h"
#include "base/status/annotate.h"
#include "base/status/status_macros.h"
#include "base/time/clock.h"

namespace atl::net {
namespace {

// The address of a path. A long path does not fit: the address then names the
// socket in its directory, which `directory` holds open.
struct Address {
  sockaddr_un socket = {};
  UniqueFd directory;

  const sockaddr* get() const {
    return reinterpret_cast<const sockaddr*>(&socket);
  }
};

absl::StatusOr<Address> MakeAddress(const std::string& path) {
  Address address;
  address.socket.sun_family = AF_UNIX;
  constexpr size_t kBytes = sizeof(address.socket.sun_path);
  std::string short_path = path;
  if (path.size() >= kBytes) {
    const std::string directory = ParentDirectory(path);
    address.directory = UniqueFd(
        ::open(directory.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (!address.directory.valid()) return ErrnoToStatus(errno, directory);
    short_path = absl::StrCat("/proc/self/fd/", address.directory.get(), "/",
                              path.substr(path.rfind('/') + 1));
  }
  if (path.empty() || short_path.size() >= kBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "socket path \"", path,
        "\" needs a name of 1 to 80 bytes: choose a shorter one"));
  }
  std::memcpy(address.socket.sun_path, short_path.data(), short_path.size());
  return address;
}

absl::StatusOr<UniqueFd> MakeSocket() {
  UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return ErrnoToStatus(errno, "socket");
  return fd;
}

// The owner of the socket's directory could put another socket there.
absl::Status CheckDirectory(const std::string& path) {
  const std::string directory = ParentDirectory(path);
  struct stat status = {};
  if (::stat(directory.c_str(), &status) != 0) {
    return ErrnoToStatus(errno, directory);
  }
  return CheckOwner(status, directory);
}

// Removes a socket on which no process listens.
absl::Status RemoveStale(const std::string& path, const Address& address) {
  struct stat found = {};
  if (::lstat(path.c_str(), &found) != 0) return absl::OkStatus();
  if (!S_ISSOCK(found.st_mode)) {
    return absl::AlreadyExistsError(
        absl::StrCat(path, " exists and is no socket: choose another path"));
  }
  ASSIGN_OR_RETURN(const UniqueFd probe, MakeSocket());
  if (::connect(probe.get(), address.get(), sizeof(address.socket)) == 0) {
    return absl::AlreadyExistsError(
        absl::StrCat("another process listens at ", path,
                     ": end it, or choose another path"));
  }
  if (errno == ENOENT) return absl::OkStatus();
  // Other errors are those of a socket that is in use: of another type, or of
  // another user.
  if (errno != ECONNREFUSED) {
    return absl::AlreadyExistsError(
        absl::StrCat(path, " is a socket of another program (",
                     std::strerror(errno), "): choose another path"));
  }
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) {
    return ErrnoToStatus(errno, path);
  }
  return absl::OkStatus();
}

absl::Status Gone(absl::string_view why) {
  return absl::UnavailableError(absl::StrCat("the peer is gone: ", why));
}

// Closes the descriptors in `header`'s control data.
void CloseReceived(msghdr& header) {
  for (cmsghdr* part = CMSG_FIRSTHDR(&header); part != nullptr;
       part = CMSG_NXTHDR(&header, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) {
      continue;
    }
    for (size_t at = CMSG_LEN(0); at + sizeof(int) <= part->cmsg_len;
         at += sizeof(int)) {
      int fd = -1;
      std::memcpy(&fd, reinterpret_cast<const char*>(part) + at, sizeof(fd));
      ::close(fd);
    }
  }
}

}  // namespace

absl::StatusOr<PacketSocket> PacketSocket::Connect(const std::string& path) {
  ASSIGN_OR_RETURN(const Address address, MakeAddress(path));
  ASSIGN_OR_RETURN(UniqueFd fd, MakeSocket());
  if (::connect(fd.get(), address.get(), sizeof(address.socket)) != 0) {
    if (errno == ECONNREFUSED) {
      return absl::UnavailableError(absl::StrCat(path, " has no listener"));
    }
    return ErrnoToStatus(errno, path);
  }
  return PacketSocket(std::move(fd));
}

absl::Status PacketSocket::Send(absl::string_view text, int fd,
                                absl::Duration timeout) {
  if (text.size() > kPacketBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a message of ", text.size(), " bytes does not fit a packet"));
  }
  iovec bytes = {const_cast<char*>(text.data()), text.size()};
  msghdr header = {};
  header.msg_iov = &bytes;
  header.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  if (fd >= 0) {
    header.msg_control = control;
    header.msg_controllen = sizeof(control);
    cmsghdr* const part = CMSG_FIRSTHDR(&header);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(part), &fd, sizeof(fd));
  }
  const absl::Time deadline = SystemClock().Now() + timeout;
  while (::sendmsg(fd_.get(), &header, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
    if (!WouldBlock(errno)) return Gone(std::strerror(errno));
    if (!WaitForSocket(fd_.get(), POLLOUT, {deadline}).ok()) {
      return Gone("it reads nothing");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> PacketSocket::Receive() {
  std::string text(kPacketBytesMax, '\0');
  iovec bytes = {text.data(), text.size()};
  msghdr header = {};
  header.msg_iov = &bytes;
  header.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * 4)] = {};
  header.msg_control = control;
  header.msg_controllen = sizeof(control);
  ssize_t length = 0;
  do {
    length = ::recvmsg(fd_.get(), &header, MSG_CMSG_CLOEXEC);
  } while (length < 0 && errno == EINTR);
  if (length < 0) return Gone(std::strerror(errno));
  CloseReceived(header);
  if (length == 0) return Gone("it closed the connection");
  if ((header.msg_flags & MSG_TRUNC) != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the peer sent a packet of more than ", kPacketBytesMax, " bytes"));
  }
  text.resize(static_cast<size_t>(length));
  return text;
}

absl::StatusOr<std::unique_ptr<PacketListener>> PacketListener::Listen(
    const std::string& path) {
  ASSIGN_OR_RETURN(const Address address, MakeAddress(path));
  RETURN_IF_ERROR(CheckDirectory(path));
  RETURN_IF_ERROR(RemoveStale(path, address));
  ASSIGN_OR_RETURN(UniqueFd fd, MakeSocket());
  // The mode holds from the first moment; this runs before other threads.
  const mode_t mask = ::umask(0177);
  const int bound = ::bind(fd.get(), address.get(), sizeof(address.socket));
  const int error = errno;
  ::umask(mask);
  if (bound != 0) return ErrnoToStatus(error, path);
  struct stat made = {};
  if (::lstat(path.c_str(), &made) != 0) return ErrnoToStatus(errno, path);
  if (::listen(fd.get(), 1) != 0) return ErrnoToStatus(errno, path);
  return std::unique_ptr<PacketListener>(
      new PacketListener(std::move(fd), path, made.st_dev, made.st_ino));
}

PacketListener::~PacketListener() {
  // Meanwhile the path may be another program's.
  struct stat found = {};
  if (::lstat(path_.c_str(), &found) == 0 && found.st_dev == device_ &&
      found.st_ino == inode_) {
    ::unlink(path_.c_str());
  }
}

absl::StatusOr<PacketSocket> PacketListener::Accept() {
  UniqueFd fd(::accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!fd.valid()) return ErrnoToStatus(errno, path_);
  ucred peer = {};
  socklen_t size = sizeof(peer);
  if (::getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
    return ErrnoToStatus(errno, path_);
  }
  if (peer.uid != 0 && peer.uid != ::geteuid()) {
    return absl::PermissionDeniedError(absl::StrCat(
        "user ", peer.uid, " may not use a socket of user ", ::geteuid()));
  }
  return PacketSocket(std::move(fd));
}

}  // namespace atl::net
