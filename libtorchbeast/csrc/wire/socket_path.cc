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

void CheckOwner(const std::string& path) {
  struct stat link, file;
  if (lstat(path.c_str(), &link) != 0 || stat(path.c_str(), &file) != 0) return;  // Not there yet.
  for (const uid_t owner : {link.st_uid, file.st_uid}) {
    if (owner == geteuid() || owner == 0) continue;
    throw std::runtime_error("Socket " + path + " belongs to user " + std::to_string(owner) +
                             ", not to user " + std::to_string(geteuid()) +
                             " who runs this program: not connecting");
  }
}

}  // namespace torchbeast
