// Who listens on the path of a Unix socket.
//
// gRPC silently takes a socket file over from a living server. Here a server looks, binds and
// removes its file under a lock on the directory: of two that start together only one gets the
// path, and one that ends slowly does not remove the file of its successor.
#pragma once

#include <string>

namespace torchbeast {

// Whether a server listens on `path`, even one that is stopped. Throws std::runtime_error if this
// process may not open a socket to look.
bool SomebodyListens(const std::string& path);

// Throws std::runtime_error if `path` is the socket of another user, neither this one nor root:
// in a directory that everybody can write to, anybody can wait there for a client.
void CheckOwner(const std::string& path);

// An exclusive lock on the directory of `path`, held for the moments in which a server binds or
// unbinds. Leaves no file behind.
class SocketDirectoryLock {
 public:
  // Waits for the lock, a few seconds at most: std::runtime_error afterwards. Does nothing if the
  // directory cannot be opened: then nobody can bind in it.
  explicit SocketDirectoryLock(const std::string& path);
  ~SocketDirectoryLock();
  SocketDirectoryLock(const SocketDirectoryLock&) = delete;
  SocketDirectoryLock& operator=(const SocketDirectoryLock&) = delete;

 private:
  int directory_ = -1;
};

// Removes the socket of a server that was killed; no other file, and no socket that somebody
// listens on. Throws std::runtime_error if another process holds the directory's lock, or
// as SomebodyListens() does.
void RemoveDeadSocket(const std::string& path);

}  // namespace torchbeast
