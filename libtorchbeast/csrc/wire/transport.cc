#include "wire/transport.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <stdexcept>

#include "wire/socket_path.h"

namespace torchbeast {

namespace {

// 127.0.0.0/8 or ::1. A name, even one that begins with 127, is none.
bool IsLoopback(const std::string& host) {
  in_addr v4;
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
  if (host.size() < 2 || host.front() != '[' || host.back() != ']') return false;
  in6_addr v6;
  return inet_pton(AF_INET6, host.substr(1, host.size() - 2).c_str(), &v6) == 1 &&
         IN6_IS_ADDR_LOOPBACK(&v6);
}

ChannelSettings CommonSettings(int max_message_bytes) {
  return {
      {GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, max_message_bytes},
      // A small compressed message could be a huge one.
      {GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0},
      {GRPC_ARG_ENABLE_PER_MESSAGE_COMPRESSION, 0},
      // Each message is answered before the next: no bandwidth to probe for, no window to wait for,
      // no other stream on the connection to be fair to.
      {GRPC_ARG_HTTP2_BDP_PROBE, 0},
      {GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 4 << 20},
      {GRPC_ARG_HTTP2_MAX_FRAME_SIZE, (1 << 24) - 1},
      {GRPC_ARG_TCP_READ_CHUNK_SIZE, 1 << 18},
      {GRPC_ARG_TCP_MAX_READ_CHUNK_SIZE, 4 << 20},
      {GRPC_ARG_ENABLE_CHANNELZ, 0},
  };
}

ChannelSettings ClientSettings(int max_message_bytes) {
  ChannelSettings settings = CommonSettings(max_message_bytes);
  // How long one attempt to connect may take. Actors try again on a new channel.
  settings.emplace_back(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 5000);
  // One connection per stream: streams that share one also share its single writer.
  settings.emplace_back(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  settings.emplace_back(GRPC_ARG_ENABLE_RETRIES, 0);
  // Else an http_proxy of the environment is asked for localhost, too: unencrypted, on another
  // machine.
  settings.emplace_back(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return settings;
}

std::shared_ptr<grpc::ChannelCredentials> MakeChannelCredentials(const Tls& tls) {
  if (tls.empty()) return grpc::InsecureChannelCredentials();
  grpc::SslCredentialsOptions options;
  options.pem_root_certs = tls.root;
  options.pem_private_key = tls.private_key;
  options.pem_cert_chain = tls.certificate;
  return grpc::SslCredentials(options);
}

}  // namespace

bool IsLocal(const std::string& address) {
  if (SocketPath(address)) return true;
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos || colon == 0 || colon + 1 == address.size() ||
      address.find_first_not_of("0123456789", colon + 1) != std::string::npos) {
    throw std::invalid_argument("Address is neither unix:PATH nor HOST:PORT: " + address);
  }
  const std::string host = address.substr(0, colon);
  return host == "localhost" || IsLoopback(host);
}

ChannelSettings ServerSettings(int max_message_bytes) {
  ChannelSettings settings = CommonSettings(max_message_bytes);
  // A second server on one port fails instead of taking half of its clients.
  settings.emplace_back(GRPC_ARG_ALLOW_REUSEPORT, 0);
  // A minute without traffic, and two hours without an answer then: the environments of a client
  // whose machine vanished are closed. The server does not read while it steps, so the answer may
  // take as long as a step of all environments of a stream. (A client waits no longer for a step
  // than its step timeout, and needs no keepalive.)
  settings.emplace_back(GRPC_ARG_KEEPALIVE_TIME_MS, 60'000);
  settings.emplace_back(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 7'200'000);
  settings.emplace_back(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  return settings;
}

std::shared_ptr<grpc::ServerCredentials> MakeServerCredentials(const Tls& tls) {
  if (tls.empty()) return grpc::InsecureServerCredentials();
  grpc::SslServerCredentialsOptions options(
      GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  options.pem_root_certs = tls.root;
  options.pem_key_cert_pairs.push_back({tls.private_key, tls.certificate});
  return grpc::SslServerCredentials(options);
}

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address, const Tls& tls,
                                           int max_message_bytes) {
  grpc::ChannelArguments arguments;
  for (const auto& [name, value] : ClientSettings(max_message_bytes)) arguments.SetInt(name, value);
  if (!tls.server_name.empty()) arguments.SetSslTargetNameOverride(tls.server_name);
  return grpc::CreateCustomChannel(address, MakeChannelCredentials(tls), arguments);
}

}  // namespace torchbeast
