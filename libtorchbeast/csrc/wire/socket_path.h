// Who listens on the path of a Unix socket.
//
// gRPC silently takes a socket file over from a living server, so a server looks before it binds.
#pragma once

#include <string>

namespace torchbeast {

// Whether a server listens on `path`, even one that is stopped. Throws std::runtime_error if this
// process may not open a socket to look.
bool SomebodyListens(const std::string& path);

// Throws std::runtime_error if `path` is the socket of another user, neither this one nor root:
// in a directory that everybody can write to, anybody can wait there for a client.
void CheckOwner(const std::string& path);

}  // namespace torchbeast
