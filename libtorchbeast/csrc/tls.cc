#include "tls.h"

#include <sys/un.h>

#include <stdexcept>

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
