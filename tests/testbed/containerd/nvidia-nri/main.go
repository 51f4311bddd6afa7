// The NRI plugin of NVIDIA's container toolkit, which injects the CDI devices that a pod's
// annotations name. In a cluster the toolkit's installer starts it; the tests have no toolkit.
//
//	nvidia-nri SOCKET NAMESPACE...   # namespaces whose pods may have all GPUs
package main

import (
	"context"
	"os"
	"os/signal"

	"github.com/NVIDIA/nvidia-container-toolkit/cmd/nvidia-ctk-installer/container/runtime/nri"
	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"
)

func main() {
	logger := logrus.New()
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM, unix.SIGINT)
	defer stop()
	plugin := nri.NewPlugin(ctx, logger, os.Args[2:])
	if err := plugin.Start(ctx, os.Args[1], "10"); err != nil {
		logger.Fatal(err)
	}
	logger.Info("plugin is registered")
	<-ctx.Done()
	plugin.Stop()
}
