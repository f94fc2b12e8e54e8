// Answers grpc.health.v1.Health/Check, by which load balancers and Kubernetes ask whether a server
// serves. All other unknown methods are answered with UNIMPLEMENTED, Health/Watch among them: the
// protocol allows it.
//
// The server's only thread answers, so an answer also says that no environment hangs.
#pragma once

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>

#include <functional>
#include <string>

#include "server/server_call.h"

namespace torchbeast {

// The status of the answer to `request`, a serialised grpc.health.v1.HealthCheckRequest: OK for the
// whole server and for the service of environments, NOT_FOUND for others.
grpc::Status CheckHealth(const std::string& request);

class HealthCall final : public ServerCall {
 public:
  // Waits for a client. `on_accept` is called when one came: another call is to wait for the next.
  HealthCall(grpc::AsyncGenericService* service, grpc::ServerCompletionQueue* queue,
             std::function<void()> on_accept);

  bool OnCompletion(Operation operation, bool ok) override;

 private:
  void Answer();

  const std::function<void()> on_accept_;
  grpc::GenericServerContext context_;
  grpc::GenericServerAsyncReaderWriter stream_;
  grpc::ByteBuffer request_;
};

}  // namespace torchbeast
