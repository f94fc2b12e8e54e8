#include "transport.h"

#include <sys/un.h>

#include <stdexcept>

#include "wire.h"

namespace torchbeast {

bool CheckAddressIsLocal(const std::string& address) {
  static const std::string kUnix = "unix:";
  if (address.rfind(kUnix, 0) == 0) {
    const std::string path = address.substr(kUnix.size());
    constexpr size_t kLimit = sizeof(sockaddr_un::sun_path) - 1;
    if (path.empty()) throw std::invalid_argument("Socket address without a path: " + address);
    if (path.size() > kLimit) {
      throw std::invalid_argument("Socket path of " + std::to_string(path.size()) +
                                  " characters, the system allows " + std::to_string(kLimit) +
                                  ": " + path);
    }
    return true;
  }
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos || colon == 0 || colon + 1 == address.size() ||
      address.find_first_not_of("0123456789", colon + 1) != std::string::npos) {
    throw std::invalid_argument("Address is neither unix:PATH nor HOST:PORT: " + address);
  }
  const std::string host = address.substr(0, colon);
  return host == "localhost" || host == "[::1]" || host.rfind("127.", 0) == 0;
}

const std::vector<std::pair<std::string, int>>& TransportSettings() {
  static const auto* const settings = new std::vector<std::pair<std::string, int>>{
      // Far above any observation, far below what would let a peer exhaust memory with one message.
      {GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, kMaxMessageBytes},
      {GRPC_ARG_MAX_SEND_MESSAGE_LENGTH, kMaxMessageBytes},
      // Each message is answered before the next: no bandwidth to probe for, no window to wait for,
      // no other stream on the connection to be fair to.
      {GRPC_ARG_HTTP2_BDP_PROBE, 0},
      {GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 4 << 20},
      {GRPC_ARG_HTTP2_MAX_FRAME_SIZE, (1 << 24) - 1},
      {GRPC_ARG_TCP_READ_CHUNK_SIZE, 1 << 18},
      {GRPC_ARG_TCP_MAX_READ_CHUNK_SIZE, 4 << 20},
      {GRPC_ARG_MINIMAL_STACK, 1},
      // A client that lost its server looks again after 100 ms to 1 s.
      {GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100},
      {GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 100},
      {GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000},
      // One connection per stream: streams that share one also share its single writer.
      {GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1},
      // A second server on one port fails instead of taking half of its clients.
      {GRPC_ARG_ALLOW_REUSEPORT, 0},
  };
  return *settings;
}

std::shared_ptr<grpc::ServerCredentials> MakeServerCredentials(const Tls& tls) {
  if (tls.empty()) return grpc::InsecureServerCredentials();
  grpc::SslServerCredentialsOptions options(
      GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  options.pem_root_certs = tls.root;
  options.pem_key_cert_pairs.push_back({tls.private_key, tls.certificate});
  return grpc::SslServerCredentials(options);
}

std::shared_ptr<grpc::ChannelCredentials> MakeChannelCredentials(const Tls& tls) {
  if (tls.empty()) return grpc::InsecureChannelCredentials();
  grpc::SslCredentialsOptions options;
  options.pem_root_certs = tls.root;
  options.pem_private_key = tls.private_key;
  options.pem_cert_chain = tls.certificate;
  return grpc::SslCredentials(options);
}

}  // namespace torchbeast
