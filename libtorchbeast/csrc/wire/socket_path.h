// The path of a Unix socket, and who listens there.
//
// gRPC silently takes a socket file over from a living server, so a server looks before it binds.
#pragma once

#include <optional>
#include <string>

namespace torchbeast {

// The path in "unix:PATH"; none for other addresses. std::invalid_argument if the path is empty,
// longer than the system allows, or one that gRPC would take for another path.
std::optional<std::string> SocketPath(const std::string& address);

// Whether a server listens on `path`, even one that is stopped. Throws std::runtime_error if this
// process may not open a socket to look.
bool SomebodyListens(const std::string& path);

// Whether there is a file at `path`. Throws std::runtime_error if it is another user's, neither
// this one's nor root's: in a directory that everybody can write to, anybody can wait there for a
// client. For the same reason a client must not connect where there was nothing a moment ago.
bool HasOwnFile(const std::string& path);

}  // namespace torchbeast
