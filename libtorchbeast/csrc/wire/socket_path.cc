#include "wire/socket_path.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

namespace torchbeast {

namespace {

const char kUnixPrefix[] = "unix:";

// Whether gRPC might take a socket path for another one. It reads a URI: it decodes %41, ends a
// path at ? or #, takes a comma for the end of one of several addresses, and //NAME for an
// authority.
bool IsReadOtherwise(const std::string& path) {
  return path.find_first_of("%?#,") != std::string::npos ||
         (path.rfind("//", 0) == 0 && path.rfind("///", 0) != 0);
}

}  // namespace

std::optional<std::string> SocketPath(const std::string& address) {
  if (address.rfind(kUnixPrefix, 0) != 0) return std::nullopt;
  std::string path = address.substr(std::strlen(kUnixPrefix));
  constexpr size_t kLimit = sizeof(sockaddr_un::sun_path) - 1;
  if (path.empty()) throw std::invalid_argument("Socket address without a path: " + address);
  if (path.size() > kLimit) {
    throw std::invalid_argument("Socket path of " + std::to_string(path.size()) +
                                " characters, the system allows " + std::to_string(kLimit) + ": " +
                                path);
  }
  if (IsReadOtherwise(path)) {
    throw std::invalid_argument(
        "Socket path that gRPC may take for another one (%, ?, # or a comma in it, or // at its "
        "start): " +
        path);
  }
  return path;
}

bool SomebodyListens(const std::string& path) {
  const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  if (fd < 0) {
    throw std::runtime_error("Cannot tell whether a server listens on " + path + ": " +
                             std::strerror(errno));
  }
  fcntl(fd, F_SETFD, FD_CLOEXEC);
  fcntl(fd, F_SETFL, O_NONBLOCK);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
  const bool connected =
      connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  // A server that is stopped lets connections pile up; another user's refuses ours; a socket of
  // another type has another owner.
  const bool listens = connected || errno == EAGAIN || errno == EINPROGRESS || errno == EACCES ||
                       errno == EPROTOTYPE;
  close(fd);
  return listens;
}

bool HasOwnFile(const std::string& path) {
  struct stat link, file;
  if (lstat(path.c_str(), &link) != 0 || stat(path.c_str(), &file) != 0) return false;
  for (const uid_t owner : {link.st_uid, file.st_uid}) {
    if (owner == geteuid() || owner == 0) continue;
    throw std::runtime_error("Socket " + path + " belongs to user " + std::to_string(owner) +
                             ", not to user " + std::to_string(geteuid()) +
                             " who runs this program: not connecting");
  }
  return true;
}

}  // namespace torchbeast
