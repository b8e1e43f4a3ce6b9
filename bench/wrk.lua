-- wrk's report as one line of JSON, and requests with a method and a body:
--   wrk ... -s wrk.lua URL -- [METHOD BODY]
function init(args)
   if args[1] then
      wrk.method = args[1]
      wrk.body = args[2]
      wrk.headers["Content-Type"] = "application/x-www-form-urlencoded"
   end
end

local curve = { 1, 5, 10, 25, 50, 75, 90, 95, 97.5, 99, 99.5, 99.9, 99.99 }

function done(summary, latency, requests)
   local points = {}
   for _, p in ipairs(curve) do
      points[#points + 1] = string.format("[%g,%d]", p, latency:percentile(p))
   end
   local e = summary.errors
   io.write(string.format(
      'JSON {"requests":%d,"us":%d,"bytes":%d,"min":%d,"mean":%.1f,"max":%d,"curve":[%s],' ..
      '"errors":{"connect":%d,"read":%d,"write":%d,"status":%d,"timeout":%d}}\n',
      summary.requests, summary.duration, summary.bytes, latency.min, latency.mean, latency.max,
      table.concat(points, ","), e.connect, e.read, e.write, e.status, e.timeout))
end
