# Run in a Ruby template: whether the name of a feature that was loaded ahead stands for two files. Ruby takes a feature for
# loaded if one of that name came from any folder that it searches now, so a program that searches another folder for some
# requests would get the wrong one. The other file is one below the script's folder, or, for a feature from no folder that
# is searched yet, one in a folder that is.
lambda {
  most = 5_000 # files and folders
  extensions = ['.rb', '.so']
  stem = lambda { |file| file.delete_suffix(File.extname(file)) }
  own = Hash.new { |all, name| all[name] = [] }
  folders, seen = [File.dirname(File.expand_path($0))], {}
  while (folder = folders.pop) && seen.size < most
    (Dir.children(folder) rescue []).each do |name|
      file = File.join(folder, name)
      if File.directory?(file)
        real = File.realpath(file)
        folders << file unless seen[real]
        seen[real] = true
      elsif extensions.include?(File.extname(name))
        seen[file] = true
        own[File.basename(name, '.*')] << file
      end
    end
  end
  two = lambda { |feature|
    searched = $LOAD_PATH.map(&:to_s)
    home = searched.select { |it| feature.start_with?(it + '/') }.max_by(&:size)
    parts = stem.call(home ? feature[home.size..] : feature).split('/').reject(&:empty?)
    (home ? [parts.size] : 1..parts.size).any? { |count|
      name = parts.last(count).join('/')
      others = own[parts.last].select { |it| stem.call(it).end_with?('/' + name) }
      others += searched.product(extensions).map { |it, extension| File.join(it, name + extension) } unless home
      others.any? { |it| File.exist?(it) && !File.identical?(it, feature) }
    }
  }
  looked = $LOADED_FEATURES.size
  lambda {
    return true if seen.size >= most
    loaded = $LOADED_FEATURES[looked..]
    looked += loaded.size
    loaded.any?(&two)
  }
}.call
