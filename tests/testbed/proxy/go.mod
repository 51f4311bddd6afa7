module esg-scheduler.io/testbed/proxy

go 1.26.0
