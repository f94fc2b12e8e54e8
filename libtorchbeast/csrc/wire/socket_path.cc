#include "wire/socket_path.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <stdexcept>
#include <thread>

#include "core/sync.h"

namespace torchbeast {

namespace {

constexpr std::chrono::seconds kLockTimeout{10};

}  // namespace

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
  struct stat status;
  if (stat(path.c_str(), &status) != 0) return;  // Nobody is there yet.
  if (status.st_uid == geteuid() || status.st_uid == 0) return;
  throw std::runtime_error("Socket " + path + " belongs to user " + std::to_string(status.st_uid) +
                           ", not to user " + std::to_string(geteuid()) +
                           " who runs this program: not connecting");
}

SocketDirectoryLock::SocketDirectoryLock(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string directory = slash == std::string::npos ? "."
                                : slash == 0               ? "/"
                                                           : path.substr(0, slash);
  directory_ = open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory_ < 0) return;
  const auto deadline = Clock::now() + kLockTimeout;
  while (flock(directory_, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) return;  // A file system without locks.
    if (Clock::now() >= deadline) {
      close(directory_);
      throw std::runtime_error("Another process holds the lock on " + directory);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

SocketDirectoryLock::~SocketDirectoryLock() {
  if (directory_ >= 0) close(directory_);
}

void RemoveDeadSocket(const std::string& path) {
  const SocketDirectoryLock lock(path);
  struct stat status;
  if (lstat(path.c_str(), &status) != 0 || !S_ISSOCK(status.st_mode)) return;
  if (!SomebodyListens(path)) unlink(path.c_str());
}

}  // namespace torchbeast
