#!/bin/sh
# Turns a Debian base into a node image of kind. `node_image.py` runs it in a container that has the
# files of the node and the archives of its images below /stage, and commits the result.
set -eu
cp -R /stage/files/. /
mkdir -p /etc/kubernetes/manifests /opt/cni
ln -sfn /usr/lib/cni /opt/cni/bin
ln -sf /lib/systemd/systemd /sbin/init

# The node runs containerd and the kubelet; what Debian enables expects a whole machine.
rm -f /etc/systemd/system/*.wants/* /lib/systemd/system/multi-user.target.wants/* \
    /lib/systemd/system/sysinit.target.wants/systemd-tmpfiles-setup.service \
    /lib/systemd/system/local-fs.target.wants/* /lib/systemd/system/basic.target.wants/* \
    /lib/systemd/system/sockets.target.wants/*udev* /lib/systemd/system/sockets.target.wants/*initctl*
systemctl enable kubelet.service containerd.service undo-mount-hacks.service
systemctl mask systemd-binfmt.service
echo "ReadKMsg=no" >> /etc/systemd/journald.conf

# Root of a machine may lack CAP_SYS_RESOURCE: containers then keep the OOM score of containerd.
sed -i -e 's/restrict_oom_score_adj = false/restrict_oom_score_adj = true/' /etc/containerd/config.toml
sed -i -e '/^OOMScoreAdjust=/d' /etc/systemd/system/containerd.service
ctr oci spec | jq 'del(.process.rlimits)' > /etc/containerd/cri-base.json

containerd >/tmp/containerd.log 2>&1 &
until ctr version >/dev/null 2>&1; do sleep 0.1; done
for archive in /stage/images/*.tar; do
    ctr --namespace k8s.io images import --no-unpack "$archive"
done
kill $!
wait $! || true
rm -rf /tmp/containerd.log /run/containerd
