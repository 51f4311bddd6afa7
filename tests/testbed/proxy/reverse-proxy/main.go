// Command reverse-proxy forwards each request by httputil.ReverseProxy: the yardstick of the
// gateway's benchmark.
//
//	reverse-proxy LISTEN-ADDRESS TARGET-ADDRESS
package main

import (
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
)

func main() {
	target := &url.URL{Scheme: "http", Host: os.Args[2]}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	// The default of two kept connections would make it connect for most requests.
	transport.MaxIdleConns = 1024
	transport.MaxIdleConnsPerHost = 1024
	proxy := &httputil.ReverseProxy{
		Rewrite:   func(request *httputil.ProxyRequest) { request.SetURL(target) },
		Transport: transport,
	}
	log.Fatal(http.ListenAndServe(os.Args[1], proxy))
}
