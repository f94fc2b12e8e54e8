// How both ends of a stream reach each other: addresses, credentials, gRPC's settings.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace torchbeast {

// PEM texts. A server needs all three and accepts only clients whose certificate `root` signed; a
// client checks the server against `root` and shows its own certificate.
struct Tls {
  // This side's certificate, followed by those that link it to `root`, if any.
  std::string certificate;
  // The key of `certificate`.
  std::string private_key;
  // The certificate authority of the other side.
  std::string root;
  // For a client: the name that the server's certificate must have, whatever its address is. Empty:
  // that of the address.
  std::string server_name;

  bool empty() const { return certificate.empty() && private_key.empty() && root.empty(); }
};

// Whether `address` ("unix:PATH" or "HOST:PORT") cannot be reached from other machines: a socket
// path, "localhost", or a literal loopback address. std::invalid_argument if it is neither form, or
// as SocketPath().
bool IsLocal(const std::string& address);

using ChannelSettings = std::vector<std::pair<std::string, int>>;
// A server's settings, as (name, value) pairs for channel arguments. Messages of more than
// `max_message_bytes` are refused.
ChannelSettings ServerSettings(int max_message_bytes);

std::shared_ptr<grpc::ServerCredentials> MakeServerCredentials(const Tls& tls);
// A client's connection to `address`, which begins with its first call. Its limit on messages is as
// above.
std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address, const Tls& tls,
                                           int max_message_bytes);

}  // namespace torchbeast
